"""Files in cloud storage for cdc-core changefeeds, through fsspec."""
