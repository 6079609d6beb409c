"""Sinks with one mistake each."""
