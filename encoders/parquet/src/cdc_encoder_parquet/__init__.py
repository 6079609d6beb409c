"""Parquet encoder for cdc-core changefeeds."""
