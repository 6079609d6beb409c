"""The tokens and slices of the simulated rangefeed: how far a changefeed has got, and what a task reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cdc_core import Frontier, Span, Timestamp, Token

__all__ = ["INTENT", "Again", "LogSlice", "Piece", "Scan", "ScanSlice", "SimulatedToken", "is_intent"]


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


INTENT: Token = {"state": "starting"}
"""Saved before the database keeps history for the changefeed."""


def is_intent(token: Token) -> bool:
    """Return whether *token* says only that the changefeed was about to start."""
    return token == INTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The rest of a scan as of `at`: the spans that are `left`, and how many of `total` rows are `done`.

    Of a rescan, `where` has the tables of which only the rows that one of the predicates selects are read.
    """

    at: Timestamp
    left: tuple[Span, ...]
    done: int
    total: int
    where: Mapping[str, Sequence[str]] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the scan as JSON values, for `from_json`."""
        left = [span.to_json() for span in self.left]
        where = {} if self.where is None else {"where": dict(self.where)}
        return {"at": str(self.at), "left": left, "done": self.done, "total": self.total, **where}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            at=Timestamp.parse(value["at"]),
            left=tuple(Span.from_json(span) for span in value["left"]),
            done=value["done"],
            total=value["total"],
            where=value.get("where"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A rescan as of `at`, before which everything else is read: tables, each with predicates; None for all rows."""

    at: Timestamp
    tables: Mapping[str, Sequence[str] | None]

    def to_json(self) -> dict[str, Any]:
        """Return the rescan as JSON values, for `from_json`."""
        return {"at": str(self.at), "tables": dict(self.tables)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(at=Timestamp.parse(value["at"]), tables=value["tables"])


@dataclass(frozen=True, kw_only=True)
class SimulatedToken:
    """A token, parsed. The `scan`, if any is left, comes before everything else.

    `events` is the number of events seen, `tables` maps the full name of each watched table to the time when it was
    created, and `frontier` holds how far each span was read.
    """

    events: int
    tables: Mapping[str, Timestamp]
    frontier: Frontier
    scan: Scan | None = None
    again: Again | None = None

    @property
    def needed(self) -> Timestamp:
        """The time from which on history is needed."""
        return self.frontier.high_water

    def to_token(self) -> Token:
        return {
            "events": self.events,
            "tables": {name: str(created) for name, created in self.tables.items()},
            "frontier": self.frontier.to_json(),
            "scan": None if self.scan is None else self.scan.to_json(),
            **({} if self.again is None else {"again": self.again.to_json()}),
        }

    @classmethod
    def from_token(cls, token: Token) -> Self:
        return cls(
            events=token["events"],
            tables={name: Timestamp.parse(created) for name, created in token["tables"].items()},
            frontier=Frontier.from_json(token["frontier"]),
            scan=None if token["scan"] is None else Scan.from_json(token["scan"]),
            again=Again.from_json(token["again"]) if "again" in token else None,
        )
