"""Turns methods into saboteurs: a method of a class of mistakes becomes a component that breaks one promise.

    @mistakes
    class Outages(ReferenceSink):
        @breaks("test_an_outage_is_retryable", "flush")
        def ends_for_an_outage(self) -> Flushed:
            '''Ends the changefeed when the destination is down for a moment.'''
            …

The module gets the class `EndsForAnOutage`, which is `Outages` with this method as its `flush`; `super()` in the method
is the reference. Like saboteurs, this module imports no test framework.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from cdc_core import (
    Decoder,
    Destination,
    Encoder,
    Rangefeed,
    ResolvedSink,
    Sink,
    SliceReader,
    SourceHistory,
    StepPlanner,
    StoredHistory,
)
from cdc_core.registrations import Registration

C = TypeVar("C")
H = TypeVar("H", bound=type)
R = TypeVar("R", bound=Registration)

_MARK = "cdc_breaks"
_FIELDS: dict[type, str] = {
    Sink: "sink",
    ResolvedSink: "resolved_sink",
    Destination: "destination",
    StoredHistory: "history",
    Encoder: "encoder",
    Decoder: "decoder",
    Rangefeed: "rangefeed",
    StepPlanner: "planner",
    SliceReader: "reader",
    SourceHistory: "history",
}
"""The registration's field for each role. Other classes are options."""


def breaks(promise: str, method: str = "", **registered: object) -> Callable[[C], C]:
    """Mark what breaks the promise of a test: a class, a function, or a method that replaces *method*.

    *registered* are the fields that its registration changes too. Two parts may break a promise together. If there are
    several ways to break it, each has a name in brackets: `test_flush_is_a_barrier[leaves_rows_to_close]`.
    """

    def mark(target: C) -> C:
        setattr(target, _MARK, (promise, method, registered))
        return target

    return mark


def mistakes(holder: H) -> H:
    """Add a subclass to the module of *holder* for each of its marked methods, named after the method."""
    for name, method in list(vars(holder).items()):
        if hasattr(method, _MARK):
            promise, replaced, registered = getattr(method, _MARK)
            own = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
            members = {replaced: method, "__doc__": method.__doc__, "__module__": holder.__module__}
            saboteur = breaks(promise, **registered)(type(holder)(own, (holder,), members))
            setattr(sys.modules[holder.__module__], own, saboteur)
    return holder


def broken(reference: R, *modules: ModuleType) -> dict[str, R]:
    """Return what breaks each promise: *reference* with the marked parts of *modules*, and their mistake as summary."""
    changed: dict[str, dict[str, Any]] = {}
    for module in modules:
        for name, part in vars(module).items():
            if getattr(part, "__module__", "") == module.__name__ and _MARK in vars(part):
                promise, _, registered = vars(part)[_MARK]
                roles = (field for role, field in _FIELDS.items() if issubclass(part, role))
                field = next(roles, "options") if isinstance(part, type) else "function"
                mistake = (part.__doc__ or "").strip().partition("\n\n")[0]
                fields = changed.setdefault(promise, {"summary": " ".join(mistake.split())})
                assert field not in fields, f"{fields[field]} breaks {promise} too"
                fields |= {field: f"{module.__name__}:{name}", **registered}
    return {promise: dataclasses.replace(reference, **fields) for promise, fields in changed.items()}
