"""Registers broken parts of sinks in place of the reference's parts."""

from __future__ import annotations

import dataclasses

from cdc_core import Destination, ResolvedSink, Sink, SinkRegistration, StoredHistory

__all__ = ["Part", "replaced"]

Part = type[Sink] | type[ResolvedSink] | type[Destination] | type[StoredHistory]

_FIELDS = {Sink: "sink", ResolvedSink: "resolved_sink", Destination: "destination", StoredHistory: "history"}
"""The field of a registration that names the part of each role."""


def replaced(registration: SinkRegistration, *parts: Part) -> SinkRegistration:
    """Return *registration* with *parts* in place of the parts of their roles."""
    classes = {
        field: f"{part.__module__}:{part.__name__}"
        for part in parts
        for role, field in _FIELDS.items()
        if issubclass(part, role)
    }
    return dataclasses.replace(registration, **classes)  # type: ignore[arg-type]
