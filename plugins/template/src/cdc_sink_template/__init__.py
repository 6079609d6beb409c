"""Append-only SQLite files for changefeeds. Only what `plugin` registers is public."""
