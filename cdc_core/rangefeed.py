"""The source side: a rangefeed yields the changes of tables, and how far they are complete.

One changefeed run uses several instances of one rangefeed class, each built from the same context in the process that
needs it: the *driver* (check, schemas, start, now), the *planner* (advance, slices), *executors* (read) and the
*coordinator* (release, metrics). They share nothing but the context and the tokens. Constructors have no side effects
and connect to nothing.

A **token** is a JSON value of the rangefeed's own making that says where in its history a step ends. Tokens are saved,
shown to people and compared for equality; they hold no secret.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.span import Span
from cdc_core.timestamp import Timestamp

__all__ = ["Mark", "Rangefeed", "RangefeedContext", "ScanProgress", "Slice", "StepLimit", "Token"]

Token = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangefeedContext:
    """What a rangefeed is built from. Picklable."""

    changefeed: str
    """Name of the changefeed."""
    feed_id: str
    """Random identity of the changefeed, chosen once and saved, 12 hex digits. Name by it what you create."""
    uri: str = field(repr=False)
    """URI of the source, secrets included."""
    tables: tuple[str, ...]
    """Tables to watch, as the user wrote them."""
    options: Any
    """An instance of the registered options class."""
    diff: bool = False
    """Whether `before` is wanted."""
    mvcc: bool = False
    """Whether `mvcc` is wanted."""
    initial_scan: bool = True
    """Whether the tables' contents at the start are wanted."""
    parallelism: int = 1
    """How many slices can be read at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimit:
    """About how much one step may hold. A step may be larger only where the source cannot cut (one transaction)."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One task's share of a step. Picklable and small; `payload` is the rangefeed's own.

    No row of the slice has `updated` below `lower`, and `lower` is above what is resolved for all tables together. The
    engine checks both, and stops the changefeed rather than deliver a row that came too late.
    """

    lower: Timestamp
    payload: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Yielded by `read` after the rows of *span* in a slice.

    Every row of the span in this slice has `updated <= timestamp`, and every later step's rows have it greater (scanned
    rows: greater or equal). With `resolved`, moreover every row of the span with `updated <= timestamp` has been read.
    """

    span: Span
    timestamp: Timestamp
    resolved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """How much of the initial scan lies behind a token; `unit` names what is counted, such as 'chunks'."""

    done: int
    total: int
    unit: str


class Rangefeed(ABC):
    """A source of row changes. One instance serves one process; methods are never called at the same time.

    Raises, everywhere: RetryableRangefeedError (the step runs again later), TerminalRangefeedError and HistoryLostError
    (the changefeed stops), ConfigError (before the start only).
    """

    repeats_steps: ClassVar[bool] = False
    """Whether `repeat` may return slices. Their plans are then saved, which is one small write a step."""

    def __init__(self, context: RangefeedContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Return when the changefeed can run: source reachable, tables there and fit, privileges and settings right.

        Called on the driver before every start and by `cdc check`. Changes nothing. Raises: ConfigError.
        """

    @abstractmethod
    def schemas(self) -> Sequence[TableSchema]:
        """Return the present schema of every watched table. Driver, after `check`."""

    @abstractmethod
    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        """Return the token that the run starts from; on return the source keeps all history after it.

        Driver, once a run, while no task of an earlier run is alive. *saved* is the token saved last, None the first
        time. Before anything is created on the source, the intent is passed to *save*, which has stored it durably on
        return; it comes back as *saved* after a crash in between. Raises: HistoryLostError when changes after *saved*
        are gone.
        """

    @abstractmethod
    def now(self) -> Timestamp:
        """Return the source's clock: all that is committed when this is called will have `updated` at or below it."""

    @abstractmethod
    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        """Return where the next step ends: *start* itself when there is nothing to do yet.

        Planner, once a step and again while idle, never while a slice is being read. *after* is the greatest timestamp
        that any mark so far has carried. The step never crosses a schema change that needs a decision, and obeys
        *limit*. The end holds the source's clock, so an idle source advances too, at its own pace.
        """

    @abstractmethod
    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        """Return the step's slices, at least one. No key is in two of them. Planner, directly after `advance`."""

    def repeat(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice] | None:  # noqa: ARG002
        """Return the slices of a step that an earlier run planned and perhaps did not finish; None to plan it anew.

        Planner, in place of the first `advance` and `slices` of a run, if `repeats_steps`. *start* is what `start` has
        returned, *end* and *after* are those of the earlier run. The slices must be what `slices` returned then, in
        their `repr` too, by which the engine compares them, and yield the same rows in the same batches; where that
        cannot be, as for slices of an initial scan, return None. By default no step is repeated.
        """
        return None

    @abstractmethod
    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        """Yield the rows of *slice_* and, after them, one mark for each span that the slice advances.

        Executor; the instance has seen no other call. Repeatable: the same slice yields the same rows in the same order
        (scan slices: within their round). Rows of a key come in `updated` order. Memory stays bounded however large the
        slice is. The iterator may be abandoned or its process killed at any point.
        """

    @abstractmethod
    def release(self, token: Token) -> None:
        """Let the source forget the history before *token*: all of it is durable at the sink and saved.

        Coordinator, after each step, never while a slice is being read. The only call that lets history go. May be
        skipped, repeated, and called with a token older than the last.
        """

    @abstractmethod
    def scan_progress(self, token: Token) -> ScanProgress | None:
        """Return how far the initial scan is at *token*; None when there is none or it is complete. No connection."""

    @abstractmethod
    def metrics(self) -> Mapping[str, float]:
        """Return the source's own gauges by name, such as the bytes of log it retains. Coordinator, after `release`."""

    @abstractmethod
    def drop(self, saved: Token | None) -> None:
        """Remove everything that this changefeed created on the source; no step of it follows. Repeatable.

        Driver, when the initial scan was all that is wanted and is durable at the sink, also before it was started in
        this process; or by whoever cancels the changefeed.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. May be called twice, or never."""
