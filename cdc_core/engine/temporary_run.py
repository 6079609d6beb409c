"""A changefeed in this process of which nothing remains: no store, no sink, and nothing at its source.

The same rangefeed, and the same rules about its rows and marks as in any run. A step counts when the caller has taken
all its rows. A failed step is repeated from the last one that counts, with some rows again, as in any run.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.engine.aggregator import read_slice
from cdc_core.engine.checks import check_time_range
from cdc_core.engine.error_text import one_line
from cdc_core.engine.finish import all_delivered
from cdc_core.engine.packing import END, REFUSED, ROWS, Arriving, unpack
from cdc_core.engine.refused_rows import refused_row
from cdc_core.engine.retry_policy import RetryPolicy
from cdc_core.engine.slices import PlannedSlice, SliceReport
from cdc_core.engine.step_actions import (
    AddRescans,
    Advance,
    Cut,
    CutStep,
    EmitResolved,
    Planned,
    Planning,
    ReadClock,
    Release,
    Repeat,
    Save,
    SavePlan,
)
from cdc_core.engine.step_machine import StepMachine, StepRules, perform
from cdc_core.errors import ConfigError, RetryableError
from cdc_core.masking import mask
from cdc_core.options import Duration
from cdc_core.rangefeed import Rangefeed
from cdc_core.rangefeed_values import Token
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.sink import Flushed
from cdc_core.slice_reader import SliceReader, SpanMark
from cdc_core.source_history import SourceHistory
from cdc_core.span import Span
from cdc_core.step_planner import StepPlanner
from cdc_core.store.values import Progress
from cdc_core.timestamp import Timestamp

log = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE_S = 0.05
_MAX_WAIT_S = 0.5
_PARALLELISM = 1

Item = RowBatch | BadRow | Timestamp
"""Rows, a row that cannot be delivered, or a resolved mark."""


class Evaluation(Protocol):
    """What is delivered of the rows of tables."""

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        """Return the columns that are delivered of tables with *schemas*. Raises: ConfigError."""

    def of(self, rows: RowBatch) -> Iterator[Arriving]:
        """Yield what is delivered of *rows*, in order."""

    def shown(self, rows: RowBatch) -> RowBatch:
        """Return *rows* as people may see those that are refused: see `read_slice`."""


class WholeRows:
    """Evaluation without a query."""

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        return schemas

    def of(self, rows: RowBatch) -> Iterator[Arriving]:
        yield ROWS, rows

    def shown(self, rows: RowBatch) -> RowBatch:
        return rows


def temporary(feed: ResolvedChangefeed) -> ResolvedChangefeed:
    """Return *feed* for a run that leaves nothing behind, under a new identity. Raises: ConfigError."""
    if not feed.rangefeed.registration.temporary:
        raise ConfigError(
            f"changefeed '{feed.name}': source '{feed.rangefeed.name}' does not support temporary changefeeds; run"
            f" the changefeed with a sink such as file:///tmp/out, and drop it afterwards"
        )
    options = replace(feed.options, give_up_after=Duration(0.0))  # people wait: after max_attempts at the latest
    feed = replace(feed, options=options, parallelism=_PARALLELISM, temporary=True)
    return replace(feed, feed_id=secrets.token_hex(6), epoch=1)


class TemporaryRun:
    """One run of *feed*, which `temporary` has returned. `items` is called once; `stop` from any thread.

    *check* is called with the tables as they are delivered, before anything is created at the source. With *scans_only*
    it ends after the initial scan, whatever the options say.
    """

    def __init__(
        self,
        feed: ResolvedChangefeed,
        *,
        evaluation: Evaluation,
        check: Callable[[Sequence[TableSchema]], object],
        scans_only: bool = False,
    ) -> None:
        self._feed = feed
        self._evaluation = evaluation
        self._check = check
        self._scans_only = scans_only
        self._stop = threading.Event()
        self._progress, self._begun = Progress(token={}), False
        self._rules = StepRules.of(feed)
        self._retry_policy, self._retry_policy_of_use = RetryPolicy(feed), RetryPolicy(feed)

    def used(self, use: Callable[[], T]) -> T | None:
        """Return what *use* of an item returns, with retries as of a step; None after `stop`. Raises: as `items`."""
        while not self._stop.is_set():
            try:
                found = use()
            except RetryableError as error:
                self._wait(self._retry_policy_of_use, error)
            else:
                self._retry_policy_of_use.reset()
                return found
        return None

    def stop(self) -> None:
        """End the run soon: `items` ends before its next step."""
        self._stop.set()

    def items(self) -> Generator[Item]:
        """Yield rows and marks as they come, until the changefeed is complete or `stop` was called.

        It reads on only when the next item is asked for. Whatever ends it, nothing stays open. Raises: ConfigError
        before anything was created; what the rangefeed raises, unless a retry cures it.
        """
        feed = self._feed
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            rangefeed.check()
            self._check(self._evaluation.delivered(rangefeed.schemas()))
            check_time_range(feed)
            while not self._stop.is_set():
                try:
                    self._start(rangefeed)
                    yield from self._attempt()
                    return
                except RetryableError as error:
                    self._wait(self._retry_policy, error)

    def _start(self, rangefeed: Rangefeed) -> None:
        before = self._progress
        token = rangefeed.start(before.token if self._begun else None, _forget)
        spans = [Span(schema.name.full) for schema in rangefeed.schemas()]
        self._progress = replace(before, token=token, frontier=before.frontier.watching(spans))
        self._begun = True

    def _attempt(self) -> Iterator[Item]:
        """Carry out what the step machine wants. Its progress is in memory alone."""
        machine = StepMachine(self._rules)
        machine.resume(self._progress, step=-1, now=time.monotonic())
        with ExitStack() as parts:
            planner = parts.enter_context(closing(Parts(self._feed).open_planner()))
            reader = parts.enter_context(closing(Parts(self._feed).open_reader()))
            history = parts.enter_context(closing(Parts(self._feed).open_history()))
            while not self._stop.is_set() and not self._complete:
                slices = perform(machine.plan(time.monotonic()), partial(_planned, planner))
                if not slices:
                    self._stop.wait(min(_MAX_WAIT_S, max(_IDLE_S, machine.wait_s(time.monotonic()))))
                    continue
                reports = []
                for planned in slices:
                    reports.append((yield from self._read(reader, planned)))
                for action in machine.complete(reports, time.monotonic()):
                    match action:
                        case Save():
                            self._progress = action.progress
                            self._retry_policy.reset()
                        case EmitResolved():
                            yield action.mark
                        case Release():
                            self._progress = machine.progress
                            self._release(history)
        mark = self._progress.resolved
        if self._complete and self._feed.options.resolved is not None and mark > self._progress.emitted:
            yield mark

    @property
    def _complete(self) -> bool:
        scanned = self._scans_only and bool(self._progress.last_mark(scans_only=True))
        return scanned or all_delivered(self._feed, self._progress)

    def _read(self, reader: SliceReader, planned: PlannedSlice) -> Generator[Item, None, SliceReport]:
        """Yield the rows of a slice; return its report."""
        marks: Sequence[SpanMark] = ()
        packed: Iterator[Any] = read_slice(
            reader,
            planned,
            within=self._rules.within,
            max_row_bytes=self._feed.options.max_row_bytes,
            pack=self._evaluation.of,
            shown=self._evaluation.shown,
        )
        for kind, value in unpack(batch for _, batch in packed):
            if isinstance(value, RowBatch | BadRow):
                yield value
            elif kind == REFUSED:
                yield refused_row(value)
            elif kind == END:
                marks = value.marks
            del value
        return SliceReport(planned=planned, marks=tuple(marks), rows=0, flushed=Flushed(), seconds=0.0)

    def _release(self, history: SourceHistory) -> None:
        try:
            history.release(self._progress.token)
        except RetryableError as error:
            log.warning("the source did not release its history; the next step tries again: %s", self._shown(error))

    def _wait(self, policy: RetryPolicy, error: RetryableError) -> None:
        """Wait as *policy* says, until `stop`. Raises: *error* when no other attempt is to follow."""
        name, shown = self._feed.name, self._shown(error)
        if policy.give_up_reason(error, "any") is not None:  # people wait: all reasons of one kind count together
            raise error
        if wait_s := policy.next_wait_s(error):
            log.warning("changefeed '%s': %s; next attempt in %.1f s", name, shown, wait_s, extra={"changefeed": name})
            self._stop.wait(wait_s)

    def _shown(self, error: Exception) -> str:
        return mask(one_line(error), self._feed.secrets())


def _planned(planner: StepPlanner, action: Planning) -> object:
    """Carry out *action* without saved plans and without rescans."""
    match action:
        case ReadClock():
            return planner.now()
        case AddRescans():
            return action.start
        case Advance():
            return planner.advance(action.start, after=action.after, limit=action.limit)
        case Cut():
            return CutStep(slices=planner.slices(action.start, action.end, after=action.after))
        case Repeat() | Planned() | SavePlan():
            return None


def _forget(intent: Token) -> None:
    """Save no intent: what is created ends with this process."""
