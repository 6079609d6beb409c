"""Readers of what a changefeed delivered to files."""
