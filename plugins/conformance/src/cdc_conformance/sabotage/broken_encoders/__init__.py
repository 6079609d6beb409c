"""Encoders with one mistake each. Like all encoders, they import no test framework, except `imports`."""
