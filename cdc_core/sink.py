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

    `(planned_by or context.epoch, step, index)` identifies it, and always has the same rows. But values that the source
    fills in when it reads may be newer. So do not overwrite a file of that name that has other content. An existing
    file is no reason to skip rows either: the task that wrote it may have ended early.
    """

    step: int
    """Counts the steps of an attempt from 0."""
    index: int
    """Counts the slices of the step from 0."""
    lower: Timestamp
    """No row of the slice has `updated` below this, and no resolved mark at or above it was emitted. Rows that are
    replayed from the dead letters are the exception: they may be of any age."""
    planned_by: int | None = None
    """Epoch of the earlier attempt that planned the slice, when this one repeats it; None for a slice of its own."""
    task_attempt: int = 0
    """How often this attempt has begun the slice before: the task is started again if it dies."""
    replay: bool = False
    """Whether the rows were refused before and are replayed from the dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRow:
    """A row that the destination refuses because of its contents.

    `index` counts the rows from 0, in the order in which they were emitted since the last `flush`.
    """

    index: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What one `flush` made durable: `bytes` as they went out, after compression.

    `refused` lists, once each, the rows that the destination will never take; every other row is durable. `delivered`
    is what a sink that `records` needs again in `ResolvedSink.record`: JSON objects without secrets, such as one for
    each file. They are saved in one transaction with the progress that they belong to.
    """

    messages: int = 0
    bytes: int = 0
    files: int = 0
    delivered: tuple[Mapping[str, Any], ...] = ()
    refused: tuple[RefusedRow, ...] = ()


class Sink(ABC):
    """Writes the rows of slices. One instance lives in one worker process and serves one task at a time.

    For each slice the engine calls `begin`, then `emit` any number of times, then `flush`; with refused rows the last
    two several times over. It keeps the sink open for later slices of the attempt. When a call raised anything but a
    RowError, or the slice ended early, it calls `close` and never uses the sink again.

    Constructors store values and do nothing else: the engine constructs sinks in processes that never write. Create a
    client when it is first needed. Raises, everywhere: RetryableSinkError (the step runs again after a wait),
    TerminalSinkError (the changefeed stops).
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    def begin(self, slice_: SliceInfo) -> None:  # noqa: B027 (has a default)
        """Note that the rows which follow belong to *slice_*. By default nothing depends on it.

        Never called while rows wait for a `flush`.
        """

    def admit(self, topic: str) -> str | None:  # noqa: ARG002
        """Return None when rows that a query gives *topic* can follow; otherwise why none ever can: they are bad rows.

        Once for each topic, before its first row, if the registration says `routes`; after a refusal again half a
        minute later, if more rows have it. Create the topic here if need be. A destination that does not answer is no
        reason: raise RetryableSinkError for all errors but those you know to be final. By default all topics are fine.
        """
        return None

    @abstractmethod
    def emit(self, rows: RowBatch) -> None:
        """Accept *rows*, in order. May buffer, may raise for a batch that an earlier call accepted, and waits or raises
        if the destination is slow.

        Nothing is promised about durability before `flush`; rows may become visible earlier. Encode first, and let an
        EncodeError pass without having kept a row of *rows*. Send in order, and nothing after a failure: if version 3
        of a key arrived without version 2, the repetition would deliver the old version after the new one.
        """

    @abstractmethod
    def flush(self) -> Flushed:
        """Return when every emitted row is durable or refused. The barrier: progress is reported only after it.

        Durable rows survive the death of this process, its host, and the destination's process: "sent" is not
        acknowledged, and "written" is not synced to disk. A slice may have several flushes. A flush that stops waiting
        raises. Raises, as `emit` may: RefusedRowsError when rows are refused and the sink cannot tell which.
        """

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections at once, even if the destination does not answer. May be called twice, or never.

        Discard what is buffered: sending it now could deliver only the newest rows of an incomplete slice. Afterwards
        `emit` and `flush` raise a CdcError.
        """
