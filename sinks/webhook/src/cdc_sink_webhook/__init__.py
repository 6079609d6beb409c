"""Webhook sink for cdc-core changefeeds."""
