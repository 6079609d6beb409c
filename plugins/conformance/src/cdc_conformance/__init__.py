"""Proves that plugins for `cdc_core` keep their promises.

Inherit from the suite of your plugin's kind in a test module; pytest finds the rest. Public is what this module
exports. The names are loaded when they are used: `cdc` and the plugin host look into this package without pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_conformance.encoders import EncoderConformance
    from cdc_conformance.promises import Conformance, requires
    from cdc_conformance.rangefeeds import RangefeedConformance
    from cdc_conformance.sinks import SinkConformance

__all__ = ["Conformance", "EncoderConformance", "RangefeedConformance", "SinkConformance", "requires"]

_HOMES = {
    "Conformance": "cdc_conformance.promises",
    "EncoderConformance": "cdc_conformance.encoders",
    "RangefeedConformance": "cdc_conformance.rangefeeds",
    "SinkConformance": "cdc_conformance.sinks",
    "requires": "cdc_conformance.promises",
}
"""Module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
