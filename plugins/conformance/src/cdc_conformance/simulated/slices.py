"""The payloads of the simulated rangefeed's slices."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import Span, Timestamp

__all__ = ["LogSlice", "Piece", "ScanSlice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The share of one span in a step: its rows later than `after`, up to `upto`. It is read at `node`."""

    span: Span
    after: Timestamp
    upto: Timestamp
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Changes of spans that are read at one node. Their marks are not resolved while a rescan waits."""

    pieces: tuple[Piece, ...]
    resolved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSlice:
    """A chunk of a scan. Of a rescan, `where` has predicates, one of which a row must satisfy if there are any."""

    span: Span
    at: Timestamp
    where: tuple[str, ...] | None = None
    resolved: bool = True
