"""Webhooks for cdc-core changefeeds."""
