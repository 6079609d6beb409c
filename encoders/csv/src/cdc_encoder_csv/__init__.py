"""CSV encoder for cdc-core changefeeds."""
