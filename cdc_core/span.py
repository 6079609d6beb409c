"""Spans: parts of a table's key space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The keys of *table* from `start` (inclusive) to `end` (exclusive, None = no upper bound).

    Keys are bytes in whatever order-preserving encoding the rangefeed chose; the core only compares them. The default
    is a whole table. `table` is the table's full name, as in `TableName.full`.
    """

    table: str
    start: bytes = b""
    end: bytes | None = None

    def __post_init__(self) -> None:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"empty span: {self}")

    def __str__(self) -> str:
        if self.start == b"" and self.end is None:
            return self.table
        return f"{self.table}[{self.start.hex()},{'' if self.end is None else self.end.hex()})"

    def overlap(self, other: Span) -> Span | None:
        """Return the keys that both spans have, or None when they share none."""
        if self.table != other.table:
            return None
        start = max(self.start, other.start)
        ends = [end for end in (self.end, other.end) if end is not None]
        end = min(ends) if ends else None
        return None if end is not None and end <= start else Span(self.table, start, end)

    def minus(self, other: Span) -> list[Span]:
        """Return what is left of this span without the keys of *other*: none, one or two spans, in key order."""
        common = self.overlap(other)
        if common is None:
            return [self]
        left = [Span(self.table, self.start, common.start)] if self.start < common.start else []
        if common.end is None or common.end == self.end:
            return left
        return [*left, Span(self.table, common.end, self.end)]

    def to_json(self) -> list[str | None]:
        """Return the span as JSON values, for `from_json`."""
        return [self.table, self.start.hex(), None if self.end is None else self.end.hex()]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Span:
        """Return the span that `to_json` wrote. Raises: ValueError."""
        table, start, end = value
        if not isinstance(table, str):
            raise ValueError(f"the table of a span must be a string, not {table!r}")
        return cls(table, bytes.fromhex(start), None if end is None else bytes.fromhex(end))
