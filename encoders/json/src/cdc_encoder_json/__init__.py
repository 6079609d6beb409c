"""JSON encoder for cdc-core changefeeds."""
