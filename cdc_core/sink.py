"""Sinks make encoded rows durable somewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cdc_core.encoder import Encoder
from cdc_core.messages import TopicNames
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["Covered", "Flushed", "Sink", "SinkContext", "SliceInfo"]


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
    feed_id: str = ""
    """Random identity of the changefeed, 12 hex digits: one that is made anew under the same name has another."""
    format: str = ""
    """Name of the encoder, as the option `format` says it."""

    def topics(self, prefix: str = "") -> TopicNames:
        """Return how this changefeed's tables become topics, with the sink's own *prefix*."""
        return TopicNames(full_table_name=self.full_table_name, prefix=prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo:
    """Which slice the next rows belong to.

    With the run that planned it, (run, step, index) is unique, and the rows under it are always the same. What a row
    holds may differ where the source fills in values at reading, such as large ones that a change has left alone. So a
    name that is made of the three is only safe to write again when it is new, or has the same content: see `planned_by`
    and `attempt`.
    """

    step: int
    """Counts the steps of a run from 0."""
    index: int
    """Counts the slices of the step from 0."""
    lower: Timestamp
    """No row of the slice has `updated` below this. Never at or below an emitted resolved timestamp.

    Rows that are sent again from the dead letters are the exception: they may be of any age.
    """
    planned_by: int | None = None
    """Epoch of the earlier run that planned the slice, when this run repeats it; None for a slice of this run."""
    attempt: int = 0
    """Counts from 0 how often this run has begun the slice: its task may die, or a worker, and be started anew."""
    replay: bool = False
    """Whether the rows were put aside before, as refused, and are sent again from the dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What has become durable since the flush before: `bytes` as they went out, after compression.

    `delivered` is what a sink that `records` wants to know again in `record`: JSON objects without secrets, such as one
    for each file. They are saved in one transaction with the progress that they belong to.
    """

    messages: int = 0
    bytes: int = 0
    files: int = 0
    delivered: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What the resolved mark `mark` covers and the mark before it did not."""

    mark: Timestamp
    previous: Timestamp | None
    """The mark that was recorded last; zero before the first of a changefeed; None when something was delivered since
    that no record tells of, as when the changefeed ran without resolved marks for a while."""
    latest: Timestamp
    """No row that was ever delivered by now has `updated` above this."""
    delivered: tuple[Mapping[str, Any], ...]
    """Every entry of `Flushed.delivered` of the steps that were saved since `previous`, in the order of the steps."""


class Sink(ABC):
    """A destination. One instance lives in one process and serves one task at a time.

    On executors the engine calls, for each slice: `begin`, `emit` any number of times, `flush`; the last two perhaps
    several times over. It keeps the sink open for later slices of the run. When a call raised, or the slice broke off,
    it calls `close` and uses the sink no more; the three errors about rows, below, are the exception. On the
    coordinator it calls only `record` and `emit_resolved`, after every row below the timestamp was flushed. On the
    driver it calls `check` and then `prepare` before a run, and the other two on a sink of its own when a run ends.

    Constructors have no side effects and connect to nothing. The engine retries; a sink does not loop for ever. What it
    repeats by itself inside a call it tells by `repeating`, so that users see why they wait.

    Raises, everywhere: RetryableSinkError (the step runs again after a wait), TerminalSinkError (the changefeed stops).
    `emit` and `flush` also: RefusedRowsError and PartialWriteError for rows that the destination will never take. What
    the encoder raises for a row, EncodeError, leaves `emit` as it is, before the sink has taken any row of that call;
    the engine then gives the same rows again in smaller parts.
    """

    refuses_rows: ClassVar[bool] = True
    """Whether `emit` or `flush` may raise RefusedRowsError or PartialWriteError.

    The engine then keeps the rows given since the last flush, and flushes whenever they take 32 MB of memory. A sink
    that says False is given a whole slice without a flush.
    """
    records: ClassVar[bool] = False
    """Whether `record` is to be called, with what `Flushed.delivered` has said."""

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

    def record(self, covered: Covered) -> None:  # noqa: B027 (optional)
        """Return when consumers can durably learn that *covered* is all that was added up to its mark.

        Coordinator, of a sink that `records`, directly before `emit_resolved` of each new mark. Each entry is given for
        one mark only, whatever crashed in between. May be called again with the same mark, previous mark and entries.
        """

    @abstractmethod
    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when every endpoint durably holds the resolved mark: each partition of each topic, one file, one POST.

        May be called again with the same timestamp, never with a smaller one.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. Promises no delivery; may be called twice, or never."""
