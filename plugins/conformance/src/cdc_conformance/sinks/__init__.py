"""Checks that a sink keeps its promises: inherit from `SinkConformance`."""

from cdc_conformance.sinks.suite import SINK_CAPABILITIES, SinkConformance

__all__ = ["SINK_CAPABILITIES", "SinkConformance"]
