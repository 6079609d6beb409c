"""Changefeeds as jobs of nodes: who runs which, and how a job moves from one node to another."""
