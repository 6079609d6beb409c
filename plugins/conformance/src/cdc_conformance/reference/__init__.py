"""Plugins that keep every promise and are short enough to read. The kit tests itself with them."""
