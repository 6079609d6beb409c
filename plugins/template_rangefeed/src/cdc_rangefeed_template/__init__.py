"""Journals as a source for changefeeds. Only what `plugin` registers is public."""
