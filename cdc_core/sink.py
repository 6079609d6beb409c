"""The part of a sink that runs in tasks: it makes encoded rows durable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.rows import RowBatch
from cdc_core.sink_context import SinkContext
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo:
    """Which slice the next rows belong to.

    `(planned_by or context.epoch, step, index)` identifies the slice, which always has the same rows. But values that
    the source looks up may be newer when it is read again, so do not overwrite a file of that name with different
    content. Do not skip rows because a file exists: the task that wrote it may have ended early.
    """

    step: int
    """Number of the step within the attempt, from 0."""
    index: int
    """Number of the slice within the step, from 0."""
    lower: Timestamp
    """No row has `updated` below this, except replayed ones; no resolved mark at or above this has been emitted."""
    planned_by: int | None = None
    """Epoch of the earlier attempt that planned the slice, if this attempt repeats it; None if this one planned it."""
    task_attempt: int = 0
    """How often this attempt has already begun the slice: the task is started again if it dies."""
    replay: bool = False
    """Whether the rows are replayed dead letters, which were refused before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A row that the destination refuses because of its contents.

    `index` counts the rows from 0, in the order in which they were emitted since the last `flush`.
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What one `flush` made durable. `bytes` counts what was sent, after compression.

    `refused` lists each row that the destination will never accept, once; every other row is durable. `delivered` is
    what a sink that `records` needs again in `ResolvedSink.record`: JSON objects without secrets, such as one for each
    file. They are saved in one transaction with the progress that they belong to.
    """

    messages: int = 0
    bytes: int = 0
    files: int = 0
    delivered: tuple[Mapping[str, Any], ...] = ()
    refused: tuple[RefusedRow, ...] = ()


class Sink(ABC):
    """Writes the rows of slices. A worker process has one instance, which serves one task at a time.

    For each slice, the engine calls `begin`, then `emit` any number of times, then `flush`; if rows are refused, it
    calls `emit` and `flush` several times. It keeps the sink open for later slices of the attempt. If a call raises
    anything but a RowError, or the slice ends early, the engine calls `close` and never uses the sink again.

    Constructors store values and do nothing else: the engine constructs sinks in processes that never write. Create a
    client when it is first needed. Raises, everywhere: RetryableSinkError (the step runs again after a wait),
    TerminalSinkError (the changefeed stops).
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    def begin(self, slice_: SliceInfo) -> None:  # noqa: B027 (has a default)
        """Note that the following rows belong to *slice_*. By default, do nothing.

        Never called while rows wait for a `flush`.
        """

    def admit(self, topic: str) -> str | None:  # noqa: ARG002
        """Return None if rows that a query gives *topic* can follow; otherwise, why they never can: they are bad rows.

        Called once for each topic, before its first row, if the registration sets `routes`; after a refusal, called
        again half a minute later if more rows have the topic. Create the topic here if necessary. Do not refuse rows
        because the destination does not answer: raise RetryableSinkError for all errors except those that you know to
        be final. By default, all topics are accepted.
        """
        return None

    @abstractmethod
    def emit(self, rows: RowBatch) -> None:
        """Accept *rows*, in order. May buffer them, may raise for a batch that an earlier call accepted, and waits or
        raises if the destination is slow.

        Nothing is promised about durability before `flush`; rows may become visible earlier. Encode first, and let an
        EncodeError propagate before you keep any of *rows*. Send in order, and send nothing after a failure: if version
        3 of a key arrived without version 2, the repetition would deliver the old version after the new one.
        """

    @abstractmethod
    def flush(self) -> Flushed:
        """Return once every emitted row is durable or refused. Progress is reported only after this barrier.

        Durable rows survive the death of this process, of its host, and of the destination's process: sent rows must be
        acknowledged, and written rows synced to disk. A slice may have several flushes. A flush that stops waiting
        raises an error. Raises, as `emit` may: RefusedRowsError if rows are refused and the sink cannot tell which.
        """

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections at once, even if the destination does not answer. May be called twice, or never.

        Discard what is buffered: sending it now could deliver only the newest rows of an incomplete slice. Afterwards,
        `emit` and `flush` raise a CdcError.
        """
