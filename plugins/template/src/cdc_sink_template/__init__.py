"""Append-only SQLite files for changefeeds. Nothing here is public but what `plugin` registers."""
