"""What a consumer saw: finds the emitted rows and marks in it, and compares every value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cdc_conformance.promises import does_not_apply
from cdc_core import Decoder, Endpoint, RowBatch, StoredMessage, TableSchema, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.classes import load_class

_MOST_SHOWN = 200


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
        unknown = f"; something arrived that was never emitted: {self.unknown[0].text}" if self.unknown else ""
        return f"{len(absent)} of {len(rows)} rows are missing, the first is {absent[0]}{unknown}"

    def repeated(self) -> str:
        """Describe the row that is there most often; empty when none is there more than once."""
        row, count = next(iter(Counter(self.rows).most_common(1)), (None, 0))
        return f"{row} arrived {count} times" if count > 1 else ""

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


class Matcher:
    """Messages must be byte for byte what the encoder returns for a row. Files must decode to the rows' values.

    Messages may lack the key where the sink forces the key into the value, because its destination has no other place.
    """

    def __init__(self, feed: ResolvedChangefeed, *, decoder: str) -> None:
        self._encoder = Parts(feed).open_encoder()
        self._destination = Parts(feed).open_destination()
        self._files = feed.output == "files"
        self._keyless = "key_in_value" in feed.sink.registration.forced
        self._payloads: dict[tuple[str | None, bytes | None, bytes | None], Row] = {}
        self._values: dict[Row, Any] = {}
        self._schemas: dict[str | None, list[TableSchema]] = {}
        self._marks: dict[tuple[str | None, bytes | None], Timestamp] = {}
        self._decoder: Decoder | None = None
        if decoder:
            self._decoder = load_class(decoder, owner=feed.encoder.owner, base=Decoder)(Parts(feed).encoder_context())
        self._topics = [self._destination.topic(table) for table in feed.table_names]

    def topic(self, schema: TableSchema) -> str:
        """Return the topic of a table."""
        return self._destination.topic(schema.name)

    def topic_of(self, batch: RowBatch) -> str:
        """Return the topic of rows: their own, or that of their table."""
        return self._destination.topic_of(batch)

    def expect(self, batch: RowBatch) -> None:
        """Recognize the rows of *batch* from now on."""
        topic = self.topic_of(batch)
        rows = rows_of(batch, topic=topic)
        if batch.schema not in self._schemas.setdefault(topic, []):
            self._schemas[topic].append(batch.schema)
        self._values.update(zip(rows, batch.column("after").to_pylist(), strict=True))
        if not self._files and len(batch):
            messages = self._encoder.encode(batch, topic=topic)
            for row, key, value in zip(rows, messages.key.to_pylist(), messages.value.to_pylist(), strict=True):
                self._payloads[topic, key, value] = row
                if self._keyless:
                    self._payloads[topic, None, value] = row

    def expect_mark(self, timestamp: Timestamp) -> None:
        """Recognize the resolved mark of *timestamp* from now on."""
        for topic in [None] if self._files else self._topics:
            self._marks[topic, self._encoder.encode_resolved(topic or "", timestamp)] = timestamp

    def match(self, messages: Iterable[StoredMessage]) -> Iterator[SeenMessage]:
        """Yield what *messages* are: one item for each row and each mark."""
        for message in messages:
            endpoint = (message.topic, message.partition)
            mark = self._mark(message)
            if mark is not None:
                yield SeenMessage(endpoint=endpoint, mark=mark)
            elif self._files:
                yield from (SeenMessage(endpoint=endpoint, row=row, text=text) for row, text in self._in_file(message))
            else:
                row = self._payloads.get((message.topic, message.key, message.value))
                text = f"key {_clip(message.key)} value {_clip(message.value)}"
                yield SeenMessage(endpoint=endpoint, row=row, text=text)

    def _mark(self, message: StoredMessage) -> Timestamp | None:
        """Return the timestamp of a resolved mark. The decoder, if there is one, recognizes unexpected marks too."""
        for topic in (message.topic, None):
            if (topic, message.value) in self._marks:
                return self._marks[topic, message.value]
        if self._decoder is None or (self._files and message.topic is not None):
            return None
        try:
            return self._decoder.resolved(message.value)
        except ValueError:
            return None

    def _in_file(self, message: StoredMessage) -> list[tuple[Row | None, str]]:
        """Return the rows of a file, decoded with the version of the table that fits most of them."""
        if self._decoder is None:
            does_not_apply("the encoder registers no decoder, so the suite cannot read rows in files")
        readings: list[list[tuple[Row | None, str]]] = []
        for schema in self._schemas.get(message.topic, []):
            try:
                decoded = self._decoder.file(schema, message.value or b"")
            except ValueError as error:
                readings.append([(None, f"a file that cannot be decoded: {error}")])
                continue
            readings.append([self._known(message.topic or "", row) for row in decoded])
        unknown: list[tuple[Row | None, str]] = [
            (None, f"a file of topic {message.topic!r}, to which no row was emitted: {_clip(message.value)}")
        ]
        return max(readings, key=lambda reading: sum(row is not None for row, _ in reading), default=unknown)

    def _known(self, topic: str, decoded: Any) -> tuple[Row | None, str]:
        if decoded.key is None or decoded.updated is None:
            return None, f"a row without key or time: {decoded}"
        row = Row(topic=topic, key=decoded.key, updated=decoded.updated)
        if row not in self._values:
            return None, f"{row} with values {decoded.after}"
        if self._values[row] != decoded.after:
            return None, f"{row} with values {decoded.after} instead of {self._values[row]}"
        return row, ""


def _clip(value: bytes | None) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(value or b'')} bytes)"
