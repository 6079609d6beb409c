"""Encoders with one mistake each, by what they get wrong. They import no test framework, as no encoder does."""
