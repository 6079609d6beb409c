"""Protocol Buffers encoder for cdc-core changefeeds."""
