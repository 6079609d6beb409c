"""What a consumer saw, in comparison with the rows and resolved marks that were emitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from cdc_core import Endpoint, RowBatch, Timestamp

__all__ = ["Row", "Seen", "SeenMessage", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row that was emitted. Equal when topic, key and time are equal."""

    topic: str
    key: tuple[Any, ...]
    updated: Timestamp

    def __str__(self) -> str:
        return f"the row of topic {self.topic!r} with key {self.key} updated {self.updated}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMessage:
    """One row or mark at one endpoint. With neither, it is something that was never emitted."""

    endpoint: Endpoint
    row: Row | None = None
    mark: Timestamp | None = None
    text: str = ""


class Seen:
    """All messages that a consumer gets, in order within each endpoint."""

    def __init__(self, messages: Iterable[SeenMessage]) -> None:
        self.messages = tuple(messages)

    def at(self, endpoint: Endpoint) -> list[SeenMessage]:
        """Return the messages of *endpoint* in order; those of all topics for (None, None)."""
        if endpoint == (None, None):
            return list(self.messages)
        return [message for message in self.messages if message.endpoint == endpoint]

    @property
    def rows(self) -> list[Row]:
        return [message.row for message in self.messages if message.row is not None]

    @property
    def marks(self) -> list[tuple[Endpoint, Timestamp]]:
        return [(message.endpoint, message.mark) for message in self.messages if message.mark is not None]

    @property
    def unknown(self) -> list[SeenMessage]:
        """What is neither an emitted row nor a mark."""
        return [message for message in self.messages if message.row is None and message.mark is None]

    def missing(self, rows: Collection[Row]) -> str:
        """Describe which of *rows* are missing; empty when all are there."""
        there = set(self.rows)
        absent = [row for row in rows if row not in there]
        if not absent:
            return ""
        unknown = f"; something that was never emitted is there: {self.unknown[0].text}" if self.unknown else ""
        return f"{len(absent)} of {len(rows)} rows are missing, the first is {absent[0]}{unknown}"

    def repeated(self) -> str:
        """Describe the row that is there most often; empty when none is there more than once."""
        row, count = next(iter(Counter(self.rows).most_common(1)), (None, 0))
        return f"{row} is there {count} times" if count > 1 else ""

    def out_of_order(self) -> str:
        """Describe a row that arrived for the first time after a later version of its key; empty when none did.

        Rows may be repeated. Only messages of one endpoint have an order.
        """
        latest: dict[tuple[Endpoint, str, tuple[Any, ...]], Row] = {}
        before: set[tuple[Endpoint, Row]] = set()
        for message in self.messages:
            row = message.row
            if row is None or (message.endpoint, row) in before:
                continue
            last = latest.setdefault((message.endpoint, row.topic, row.key), row)
            if row.updated < last.updated:
                return f"{row} comes after the version updated {last.updated} at {message.endpoint}"
            latest[message.endpoint, row.topic, row.key] = row
            before.add((message.endpoint, row))
        return ""


def rows_of(batch: RowBatch, *, topic: str) -> list[Row]:
    """Return the rows of *batch*, in order."""
    keys = [tuple(key.values()) for key in batch.column("key").to_pylist()]
    times = [Timestamp(time["wall"], time["logical"]) for time in batch.column("updated").to_pylist()]
    return [Row(topic=topic, key=key, updated=updated) for key, updated in zip(keys, times, strict=True)]
