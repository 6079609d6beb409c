"""Tests that plugins for `cdc_core` keep their promises.

Inherit from the suite of your plugin's kind in a test module. Only what this module exports is public. Names are loaded
on first use, because `cdc` and the plugin host import this package without pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_conformance.encoders import EncoderConformance
    from cdc_conformance.functions import FunctionConformance
    from cdc_conformance.promises import Condition, Conformance, applies_if, requires
    from cdc_conformance.rangefeeds import RangefeedConformance
    from cdc_conformance.sinks import SinkConformance

__all__ = [
    "Condition",
    "Conformance",
    "EncoderConformance",
    "FunctionConformance",
    "RangefeedConformance",
    "SinkConformance",
    "applies_if",
    "requires",
]

_HOMES = {
    "Condition": "cdc_conformance.promises",
    "Conformance": "cdc_conformance.promises",
    "EncoderConformance": "cdc_conformance.encoders",
    "FunctionConformance": "cdc_conformance.functions",
    "RangefeedConformance": "cdc_conformance.rangefeeds",
    "SinkConformance": "cdc_conformance.sinks",
    "applies_if": "cdc_conformance.promises",
    "requires": "cdc_conformance.promises",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
