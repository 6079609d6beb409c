"""What a changefeed has delivered, as its consumers can read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.decoder import DecodedRow, Decoder, rows_of
from cdc_core.errors import ConfigError, HistoryLostError
from cdc_core.plugins.classes import load_class
from cdc_core.readback.reader import ChangeReader
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.sink_reader import Endpoint, SinkReader, StoredMessage
from cdc_core.stored_history import StoredHistory
from cdc_core.timestamp import Timestamp


class Delivered(ABC):
    """The marks and rows at a destination. Used by one thread.

    Raises, everywhere: ConfigError and HistoryLostError for what is not there; the client's errors.
    """

    @abstractmethod
    def marks(self) -> Sequence[Timestamp]:
        """Return the resolved marks that every consumer has now, ascending."""

    @abstractmethod
    def rows(self, schemas: Sequence[TableSchema], upto: Timestamp) -> Iterator[RowBatch]:
        """Yield all rows of tables with *schemas* up to the mark *upto*, perhaps with repeats, those of a key in order.

        Rows may have an older version of their schema.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections. May be called twice."""


class DeliveredFiles(Delivered):
    """The files of a sink that keeps a history. Memory: one decoded file."""

    def __init__(self, feed: ResolvedChangefeed) -> None:
        """The files are those of the changefeed with the identity of *feed*, or of its name if it has none."""
        self._reader = ChangeReader(feed.destination, changefeed=_identity(feed), history=_history(feed))

    def marks(self) -> Sequence[Timestamp]:
        return self._reader.marks()

    def rows(self, schemas: Sequence[TableSchema], upto: Timestamp) -> Iterator[RowBatch]:
        wanted = {schema.name for schema in schemas}
        for file in self._reader.files(upto=upto):
            if file.table in wanted:
                yield self._reader.rows(file, upto=upto)

    def close(self) -> None:
        self._reader.close()


def _identity(feed: ResolvedChangefeed) -> str:
    return f"{feed.name}.{feed.feed_id}" if feed.feed_id else feed.name


def _history(feed: ResolvedChangefeed) -> StoredHistory:
    registration = feed.sink.registration
    owner, hint = f"sink '{feed.sink.name}'", registration.install_hint
    history = load_class(registration.history, owner=owner, base=StoredHistory, install_hint=hint)
    opened: StoredHistory = history(feed.destination, feed.sink.parsed(), changefeed=_identity(feed))
    return opened


_BATCH_ROWS = 10_000


class DeliveredMessages(Delivered):
    """Every call reads all messages from the beginning, one by one: a `SinkReader` cannot continue from a position."""

    def __init__(self, feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
        """*feed* has the names of its tables, which have *schemas* now."""
        context = Parts(feed).sink_context()
        self._backfills = feed.options.schema_change_policy != "nobackfill"
        self._reader: SinkReader = feed.sink.load("reader", SinkReader)(context)
        self._decoder: Decoder = feed.encoder.load("decoder", Decoder)(Parts(feed).encoder_context())
        with closing(Parts(feed).open_destination()) as destination:
            self._topics = {destination.topic(schema.name): schema for schema in schemas}
            self._payloads = {topic: destination.payload(schema) for topic, schema in self._topics.items()}

    def marks(self) -> Sequence[Timestamp]:
        self._require_whole()
        found: dict[Endpoint, set[Timestamp]] = {endpoint: set() for endpoint in self._reader.endpoints()}
        for message in self._reader.read():
            mark = self._decoder.resolved(message.value)
            if mark is not None:
                found.setdefault((message.topic, message.partition), set()).add(mark)
        return sorted(set.intersection(*found.values())) if found else []

    def rows(self, schemas: Sequence[TableSchema], upto: Timestamp) -> Iterator[RowBatch]:
        names = {schema.name for schema in schemas}
        read = self._reader.read()
        while messages := list(islice(read, _BATCH_ROWS)):
            by_topic: dict[str, list[DecodedRow]] = {}
            for message in messages:
                topic = message.topic or ""
                if topic in self._topics and self._topics[topic].name in names:
                    row = self._row(topic, message)
                    if row is not None and self._time(topic, row) <= upto:
                        by_topic.setdefault(topic, []).append(row)
            for topic, rows in by_topic.items():
                yield self._batch(topic, rows)
        self._require_whole()  # messages may be removed meanwhile

    def close(self) -> None:
        self._reader.close()

    def _require_whole(self) -> None:
        """Return when every partition still has its first message. Raises: ConfigError."""
        for topic in sorted({topic for topic, _ in self._reader.truncated() if topic is not None}):
            raise ConfigError(
                f"topic {topic} no longer has its first messages, so an audit cannot tell which rows were delivered. "
                "Deliver to a new topic that keeps all messages (retention.ms = -1 and retention.bytes = -1)"
            )

    def _row(self, topic: str, message: StoredMessage) -> DecodedRow | None:
        """Return the row of *message*; None for a mark, and for a tombstone, which only repeats a deleted row."""
        if not message.value or self._decoder.resolved(message.value) is not None:
            return None
        try:
            return self._decoder.message(self._payloads[topic], message.key, message.value)
        except ValueError as error:
            raise HistoryLostError(f"a message in topic {topic} cannot be decoded: {error}") from error

    def _time(self, topic: str, row: DecodedRow) -> Timestamp:
        if row.updated is None:
            raise ConfigError(
                f"topic {topic} has messages without a timestamp, from before the option 'updated' was set, so an "
                "audit cannot tell which version of a row is the newest"
            )
        return row.updated

    def _batch(self, topic: str, rows: Sequence[DecodedRow]) -> RowBatch:
        schema = self._topics[topic]
        whole = [self._whole(schema, self._payloads[topic], row) for row in rows]
        try:
            return rows_of(schema, whole)
        except (pa.ArrowException, TypeError):  # an older version of the table had other types
            return rows_of(schema, [_fitting(schema, row) for row in whole])

    def _whole(self, schema: TableSchema, payload: TableSchema, row: DecodedRow) -> DecodedRow:
        """Return *row* with all columns of *schema*: those of an older version without them are NULL or unknown.

        Columns that are not in *payload* are unknown: the sink removes them, to make headers of them for example.
        """
        if row.after is None:
            return row
        lacking = [column.name for column in schema.columns if column.name not in row.after]
        if not lacking:
            return row
        explained = self._backfills and row.after.keys() <= {column.name for column in schema.columns}
        sent = {column.name for column in payload.columns}
        unknown = [name for name in lacking if not explained or name not in sent]
        after = {**dict.fromkeys(lacking), **row.after}
        return replace(row, after=after, unavailable=tuple({*row.unavailable, *unknown}))


def _fitting(schema: TableSchema, row: DecodedRow) -> DecodedRow:
    """Return *row* with unknown values in place of those that are not of their column's current type."""
    if row.after is None:
        return row
    wrong = {column.name for column in schema.columns if not _fits(row.after[column.name], column.type.arrow)}
    after = {name: None if name in wrong else value for name, value in row.after.items()}
    return replace(row, after=after, unavailable=tuple({*row.unavailable, *wrong}))


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        pa.scalar(value, type_)
    except (pa.ArrowException, TypeError):
        return False
    return True
