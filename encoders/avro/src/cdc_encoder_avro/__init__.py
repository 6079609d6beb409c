"""Avro encoder for cdc-core changefeeds."""
