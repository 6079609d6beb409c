"""What a consumer saw, put beside the rows and resolved marks that the sink was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cdc_core import Endpoint, RowBatch, Timestamp

__all__ = ["Row", "Seen", "SeenMessage", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row that was given to a sink. Equal when topic, key and time are."""

    topic: str
    key: tuple[Any, ...]
    updated: Timestamp

    def __str__(self) -> str:
        return f"the row of topic {self.topic!r} with key {self.key} updated {self.updated}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMessage:
    """One row or mark at one place; with neither it is something that the sink was never given."""

    place: Endpoint
    row: Row | None = None
    mark: Timestamp | None = None
    text: str = ""


class Seen:
    """All messages that a consumer gets, in order within each place."""

    def __init__(self, messages: Iterable[SeenMessage]) -> None:
        self.messages = tuple(messages)

    def at(self, place: Endpoint) -> list[SeenMessage]:
        """Return the messages that a consumer of *place* gets, in order; those of all topics for (None, None)."""
        if place == (None, None):
            return list(self.messages)
        return [message for message in self.messages if message.place == place]

    @property
    def rows(self) -> list[Row]:
        return [message.row for message in self.messages if message.row is not None]

    @property
    def marks(self) -> list[tuple[Endpoint, Timestamp]]:
        return [(message.place, message.mark) for message in self.messages if message.mark is not None]

    @property
    def strange(self) -> list[SeenMessage]:
        """What is neither a row that was given nor a mark."""
        return [message for message in self.messages if message.row is None and message.mark is None]

    def missing(self, rows: Iterable[Row]) -> str:
        """Say which of *rows* are not there, empty when all are."""
        there = set(self.rows)
        absent = [row for row in rows if row not in there]
        if not absent:
            return ""
        strange = f"; what is there and was never given: {self.strange[0].text}" if self.strange else ""
        return f"{len(absent)} rows are not there, the first is {absent[0]}{strange}"

    def repeated(self) -> str:
        """Say which rows are there more than once, empty when none is."""
        row, count = next(iter(Counter(self.rows).most_common(1)), (None, 0))
        return f"{row} is there {count} times" if count > 1 else ""

    def out_of_order(self) -> str:
        """Say where a row stands behind a later one of its key and was not there before that; empty when nowhere.

        Rows may be repeated. Compared are the messages of one place, as far as they have an order.
        """
        latest: dict[tuple[Endpoint, str, tuple[Any, ...]], Row] = {}
        before: set[tuple[Endpoint, Row]] = set()
        for message in self.messages:
            row = message.row
            if row is None or (message.place, row) in before:
                continue
            last = latest.setdefault((message.place, row.topic, row.key), row)
            if row.updated < last.updated:
                return f"{row} stands behind the one updated {last.updated} at {message.place}"
            latest[message.place, row.topic, row.key] = row
            before.add((message.place, row))
        return ""


def rows_of(batch: RowBatch, *, topic: str) -> list[Row]:
    """Return the rows of *batch*, in order."""
    keys = [tuple(key.values()) for key in batch.column("key").to_pylist()]
    times = [Timestamp(time["wall"], time["logical"]) for time in batch.column("updated").to_pylist()]
    return [Row(topic=topic, key=key, updated=updated) for key, updated in zip(keys, times, strict=True)]
