"""PostgreSQL source for cdc-core changefeeds, by logical decoding."""
