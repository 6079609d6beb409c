"""Readers of the files that a changefeed has written."""
