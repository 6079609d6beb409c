"""Broken rangefeeds: the simulated database, each with one mistake, which must fail exactly one promise's test."""

from __future__ import annotations

from cdc_conformance.plugin import SIMULATED
from cdc_conformance.sabotage.breaking import broken
from cdc_conformance.sabotage.broken_rangefeeds import lifecycle, planning, rows
from cdc_conformance.sabotage.rangefeed_suite import SimulatedSuite

__all__ = ["SABOTEURS", "SUITE"]

SUITE = SimulatedSuite
SABOTEURS = broken(SIMULATED, lifecycle, rows, planning)
"""The registration that breaks each promise, by the name of the promise's test."""
