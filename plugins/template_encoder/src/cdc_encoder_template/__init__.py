"""Rows as URL-encoded forms, for cdc-core changefeeds. Only what `plugin` registers is public."""
