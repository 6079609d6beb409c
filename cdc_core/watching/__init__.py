"""Changefeeds that are looked at instead of delivered: they leave nothing behind."""
