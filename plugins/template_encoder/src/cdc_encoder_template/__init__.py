"""Rows as forms of the web. Nothing here is public but what `plugin` registers."""
