"""Plugins that keep every promise and are simple enough to read: what the kit proves itself with."""
