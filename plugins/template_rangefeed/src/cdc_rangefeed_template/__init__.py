"""Journals as a source. Nothing here is public but what `plugin` registers."""
