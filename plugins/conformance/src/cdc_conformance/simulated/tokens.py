"""Positions: how far a changefeed has come in the simulated database, and the JSON tokens that they are saved as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from cdc_core import Frontier, Span, Timestamp, Token

__all__ = ["STARTING", "Position", "Scan", "is_intent"]

STARTING: Token = {"state": "starting"}


def is_intent(token: Token) -> bool:
    """Return whether *token* only says that the changefeed was about to begin."""
    return token == STARTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The initial scan as of `at`: the spans that are left of it, and how many rows lie behind."""

    at: Timestamp
    left: tuple[Span, ...]
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Position:
    """`events` were seen. What each span's rows are read up to stands in `frontier`; first comes what `scan` has left.

    `tables` holds the watched tables by full name, and when each was created.
    """

    events: int
    tables: Mapping[str, Timestamp]
    frontier: Frontier
    scan: Scan | None = None

    @property
    def needed(self) -> Timestamp:
        """From when on history is needed."""
        return self.frontier.high_water

    def to_token(self) -> Token:
        return {
            "events": self.events,
            "tables": {name: str(created) for name, created in self.tables.items()},
            "frontier": self.frontier.to_json(),
            "scan": None if self.scan is None else _scan_to_json(self.scan),
        }

    @classmethod
    def from_token(cls, token: Token) -> Self:
        return cls(
            events=token["events"],
            tables={name: Timestamp.parse(created) for name, created in token["tables"].items()},
            frontier=Frontier.from_json(token["frontier"]),
            scan=None if token["scan"] is None else _scan_from_json(token["scan"]),
        )


def _scan_to_json(scan: Scan) -> dict[str, Any]:
    left = [[span.table, span.start.hex(), None if span.end is None else span.end.hex()] for span in scan.left]
    return {"at": str(scan.at), "left": left, "done": scan.done, "total": scan.total}


def _scan_from_json(value: dict[str, Any]) -> Scan:
    left = tuple(
        Span(table, bytes.fromhex(start), None if end is None else bytes.fromhex(end))
        for table, start, end in value["left"]
    )
    return Scan(at=Timestamp.parse(value["at"]), left=left, done=value["done"], total=value["total"])
