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

    (planning epoch, step, index) is unique, and the rows under it are always the same. The values in a row may differ
    where the source fills them in when reading, such as large ones that a change left alone. So a name made of the
    three may be written again only when it is new or has the same content: see `planned_by` and `task_attempt`.
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
    """How often this attempt has begun the slice before: a task that dies is started again."""
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
    RowError, or the slice broke off, it calls `close` and never uses the sink again: `begin` comes only after
    everything was flushed.

    Constructors have no side effects and connect to nothing. The engine retries; a sink does not loop for ever. A sink
    that repeats something inside a call reports it with `SinkContext.repeating`, so that users see why they wait.

    Raises, everywhere: RetryableSinkError (the step runs again after a wait), TerminalSinkError (the changefeed stops).
    `emit` and `flush` also raise RefusedRowsError when the destination refuses rows and the sink cannot tell which. An
    EncodeError of the encoder leaves `emit` unchanged, before the sink has taken any row of that call. A sink whose
    registration says `refuses_rows=False` raises no RefusedRowsError and returns nothing in `Flushed.refused`.
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    def begin(self, slice_: SliceInfo) -> None:  # noqa: B027 (has a default)
        """Note that the rows which follow belong to *slice_*. By default nothing depends on it."""

    def admit(self, topic: str) -> str | None:  # noqa: ARG002
        """Return when rows that a query gives *topic* can follow; or why none ever can, which makes them bad rows.

        Once for each topic, before its first row, if the registration says `routes`; one with a reason is asked for
        again half a minute later. Create it here if need be. Only what will not pass by itself is such a reason; all
        other trouble is an error. By default every topic can be written.
        """
        return None

    @abstractmethod
    def emit(self, rows: RowBatch) -> None:
        """Accept *rows*, in order. May buffer, and may raise for a batch that an earlier call accepted.

        Nothing is promised about durability before `flush`; rows may become visible earlier.
        """

    @abstractmethod
    def flush(self) -> Flushed:
        """Return when every emitted row is durable or refused. The barrier: progress is reported only after it."""

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. Promises no delivery. Then `emit` and `flush` raise a CdcError. May be called again."""
