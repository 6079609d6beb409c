"""The sink: rows become messages in a table of a SQLite file, and resolved marks stand between them."""

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import repeat

from cdc_core import Flushed, MessageBatch, RowBatch, Sink, SinkContext, SliceInfo, TableName, Timestamp
from cdc_core.errors import ConfigError, TerminalSinkError

from cdc_sink_template.database import connect, path_of, translated

_TABLE = "messages (sequence INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, key BLOB, value BLOB)"
_INSERT = "INSERT INTO messages (topic, key, value) VALUES (?, ?, ?)"


class TemplateSink(Sink):
    """Appends each row as a message to the table `messages`; a resolved mark is a message without a key.

    Rows wait in memory until `flush`, or until there are `buffer_size` bytes of them, and are written in one
    transaction: memory is bounded, and no writer keeps the file from the others for long.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._waiting: list[MessageBatch] | None = None
        self._emitted = Flushed()

    def topic(self, table: TableName) -> str:
        return self.context.topics(self.context.options.topic_prefix).of(table)

    def check(self) -> None:
        """Return when the file can be written, or made. Changes nothing. Raises: ConfigError."""
        path = path_of(self.context)
        if not os.access(os.path.dirname(path), os.W_OK):
            raise ConfigError(f"the directory of '{path}' is missing, or may not be written: create it")
        if os.path.exists(path):
            with translated(self.context, setup=True), closing(connect(self.context, mode="rw")) as database:
                database.execute("SELECT count(*) FROM sqlite_schema")

    def prepare(self) -> None:
        """Make the file and its table; what is there stays. In WAL mode consumers read while we write."""
        with translated(self.context), closing(connect(self.context, mode="rwc")) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE}")

    def begin(self, slice_: SliceInfo) -> None:
        """Forget what a slice that broke off has left in memory."""
        self._database()
        self._waiting, self._emitted = [], Flushed()

    def emit(self, rows: RowBatch) -> None:
        if self._waiting is None:
            raise TerminalSinkError("the template sink was given rows before begin, or after close")
        batch = self.context.encoder.encode(rows, topic=self.topic(rows.schema.name))
        self._waiting.append(batch)
        self._emitted = Flushed(messages=self._emitted.messages + len(batch), bytes=self._emitted.bytes + batch.nbytes)
        if sum(waiting.nbytes for waiting in self._waiting) >= self.context.options.buffer_size:
            self._write_waiting()

    def flush(self) -> Flushed:
        """Return when all that was emitted is committed, and synced to the disk.

        Raises: RefusedRowsError when a constraint or trigger of the file does not take a row. SQLite does not say
        which, so all that waits is forgotten, and the engine gives it again in parts.
        """
        self._write_waiting()
        flushed, self._emitted = self._emitted, Flushed()
        return flushed

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Give each topic its mark, those without rows too, all in one transaction."""
        topics = sorted({self.topic(table) for table in self.context.tables})
        self._write((topic, [None], [self.context.encoder.encode_resolved(topic, timestamp)]) for topic in topics)

    def close(self) -> None:
        self._closed, self._waiting = True, None
        if self._connection is not None:
            self._connection.close()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting or [], []
        emitted, self._emitted = self._emitted, Flushed()  # what is refused is forgotten, and not counted
        self._write((batch.topic, batch.key.to_pylist(), batch.value.to_pylist()) for batch in waiting)
        self._emitted = emitted

    def _write(self, batches: Iterable[tuple[str, list[bytes | None], list[bytes | None]]]) -> None:
        """Return when all messages of *batches* are durable; when it raises, none of them is there."""
        with translated(self.context), self._database() as database:
            for topic, keys, values in batches:
                database.executemany(_INSERT, zip(repeat(topic), keys, values, strict=False))

    def _database(self) -> sqlite3.Connection:
        """Return the connection, opened when it is first needed: a constructor connects to nothing."""
        if self._closed:
            raise TerminalSinkError("the template sink is closed")
        if self._connection is None:
            with translated(self.context):
                self._connection = connect(self.context, mode="rw")
        return self._connection
