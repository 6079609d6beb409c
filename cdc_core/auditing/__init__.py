"""Audits: the rows at a destination beside the rows at the source."""
