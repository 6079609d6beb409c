"""Sinks make encoded rows durable somewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from cdc_core.encoder import Encoder
from cdc_core.messages import TopicNames
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["Flushed", "Sink", "SinkContext", "SliceInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What a sink is built from. Picklable, apart from the encoder."""

    changefeed: str
    epoch: int
    """Counts the runs of the changefeed: of two runs the later one has the greater epoch."""
    uri: str = field(repr=False)
    """URI of the destination without its parameters, secrets included."""
    options: Any
    """An instance of the registered options class: URI parameters and options of the changefeed together."""
    encoder: Encoder
    full_table_name: bool = False
    tables: tuple[TableName, ...] = ()
    """Every table of the changefeed, also those that never change."""

    def topics(self, prefix: str = "") -> TopicNames:
        """Return how this changefeed's tables become topics, with the sink's own *prefix*."""
        return TopicNames(full_table_name=self.full_table_name, prefix=prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo:
    """Which slice the next rows belong to. (epoch, step, index) is unique; the rows under it are repeatable."""

    step: int
    """Counts the steps of a run from 0."""
    index: int
    """Counts the slices of the step from 0."""
    lower: Timestamp
    """No row of the slice has `updated` below this. Never at or below an emitted resolved timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What has become durable since the flush before: `bytes` as they went out, after compression."""

    messages: int = 0
    bytes: int = 0
    files: int = 0


class Sink(ABC):
    """A destination. One instance lives in one process and serves one task at a time.

    On executors the engine calls, for each slice: `begin`, `emit` any number of times, `flush`; it keeps the sink open
    for later slices of the run. When any call raised, or the slice broke off, it calls `close` and uses the sink no
    more. On the coordinator it calls only `emit_resolved`, after every row below the timestamp was flushed. On the
    driver it calls `check` and then `prepare` before a run, and `emit_resolved` on a sink of its own when a run ends.

    Constructors have no side effects and connect to nothing. The engine retries; a sink does not loop for ever.

    Raises, everywhere: RetryableSinkError (the step runs again after a wait), PartialWriteError (the listed rows were
    refused, all others delivered), TerminalSinkError (the changefeed stops).
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Return when the destination is reachable and writable. Changes nothing. Raises: ConfigError."""

    @abstractmethod
    def topic(self, table: TableName) -> str:
        """Return the topic that rows of *table* go to, as the destination knows it. Connects to nothing."""

    def payload(self, schema: TableSchema) -> TableSchema:
        """Return the shape that rows of *schema* have for the encoder: the same, unless the sink takes columns out.

        Connects to nothing. Raises: ConfigError when the options ask for a column that the table does not have.
        """
        return schema

    @abstractmethod
    def prepare(self) -> None:
        """Return when the destination can take rows: what the options allow to be created there is created.

        Called once a run, after `check` and before any slice; what an earlier run prepared is there already.
        """

    @abstractmethod
    def begin(self, slice_: SliceInfo) -> None:
        """Take note that the rows which follow belong to *slice_*; everything before it was flushed or is abandoned."""

    @abstractmethod
    def emit(self, rows: RowBatch) -> None:
        """Accept *rows*, in order. May buffer, and may raise for a batch that an earlier call accepted.

        Nothing is promised about durability before `flush`; rows may become visible earlier.
        """

    @abstractmethod
    def flush(self) -> Flushed:
        """Return when everything emitted so far is durable. The barrier: progress is reported only after it."""

    @abstractmethod
    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when every endpoint durably holds the resolved mark: each partition of each topic, one file, one POST.

        May be called again with the same timestamp, never with a smaller one.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. Promises no delivery; may be called twice, or never."""
