"""The protocol of a step: what comes after what, what must hold, and what follows from what came back. It does no I/O.

    advance -> slices -> (read -> emit -> flush -> report) of each slice -> fold -> save -> mark -> release

`StepMachine.plan` and `StepMachine.complete` are this order, to be read from top to bottom. Each yields actions, one by
one; whoever drives the machine carries an action out and sends its result back (`perform`). So the machine has no
thread, clock, file, store or Spark, as the protocol of h11 has no socket. A new phase is a new action: in
`step_actions`, here, and in what carries it out, which is `planner` or `coordinator`, and `temporary_run`.

On Spark the two halves run in two processes, as planning and committing do there: each has a machine of its own, and
the progress that the store has saved is what they share. In one process, `plan`, the slices and `complete` follow each
other on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.slices import PlannedSlice, SliceReport, complete_step
from cdc_core.engine.step_actions import (
    AddRescans,
    Advance,
    Completing,
    Cut,
    EmitResolved,
    Planned,
    Planning,
    ReadClock,
    Release,
    Repeat,
    Save,
    SavePlan,
)
from cdc_core.engine.time_range import TimeRange
from cdc_core.errors import ContractError
from cdc_core.rangefeed_values import Token
from cdc_core.shards.marks import last_moved, token_with_marks
from cdc_core.sink import SliceInfo
from cdc_core.slice_reader import SpanMark
from cdc_core.step_planner import Slice, StepLimit
from cdc_core.store.values import Progress
from cdc_core.timestamp import Timestamp

_MAX_APART_S = 10.0
"""After so long a mark is emitted although less of the source's time has passed than marks are to be apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRules:
    """What a changefeed wants of its steps."""

    rangefeed: str
    """Its name in messages about a broken contract."""
    limit: StepLimit
    within: TimeRange
    scans_only: bool
    apart_s: float
    """How far apart steps are, at least, in the source's time; 0 for no pause."""
    resolved_interval_s: float | None
    """The least distance between two emitted marks, None for no marks at all."""
    is_sharded: bool
    delivery_tasks: int = 1

    @classmethod
    def of(cls, feed: ResolvedChangefeed) -> Self:
        options = feed.options
        return cls(
            rangefeed=feed.rangefeed.owner,
            limit=StepLimit(rows=options.max_step_rows, bytes=options.max_step_bytes),
            within=TimeRange.of(options),
            scans_only=options.initial_scan == "only",
            apart_s=feed.min_checkpoint_frequency_s,
            resolved_interval_s=options.resolved,
            is_sharded=feed.is_sharded,
            delivery_tasks=options.delivery_tasks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What planning knows of the saved progress: after which step, -1 before the first of an attempt."""

    step: int = -1
    token: Token
    latest: Timestamp = Timestamp()
    high_water: Timestamp = Timestamp()

    @classmethod
    def by(cls, progress: Progress, *, step: int) -> Self:
        return cls(step=step, token=progress.token, latest=progress.latest, high_water=progress.frontier.high_water)


A = TypeVar("A")
R = TypeVar("R")


def perform(actions: Generator[A, Any, R], do: Callable[[A], object]) -> R:
    """Carry out *actions* by *do*, and return what comes of them. Raises: what *do* raises; nothing more is done."""
    try:
        action = next(actions)
        while True:
            action = actions.send(do(action))
    except StopIteration as end:
        result: R = end.value
        return result


class StepMachine:
    """The steps of one attempt, one after the other. See the module.

    Times called `now` are seconds of one clock that never goes back.
    """

    def __init__(self, rules: StepRules, *, now: float = 0.0) -> None:
        self._rules = rules
        self._reached = self._before = Reached(token={})
        self._progress: Progress | None = None
        self._emitted, self._emitted_at = Timestamp(), now
        self._not_before: float | None = None
        """None until the pause after the last step is known."""
        self._asked_for_repeat = False

    @property
    def reached(self) -> Reached:
        return self._reached

    @property
    def progress(self) -> Progress:
        assert self._progress is not None
        return self._progress

    @property
    def emitted(self) -> Timestamp:
        """The last mark that was emitted."""
        return self._emitted

    @property
    def is_over(self) -> bool:
        """Whether the scan or the end is reached, so that no step follows."""
        resolved = self._reached.high_water
        return self._rules.within.over(resolved) or (self._rules.scans_only and bool(resolved))

    def wait_s(self, now: float) -> float:
        """Return how long it is still too early for a step."""
        return max(0.0, (self._not_before or 0.0) - now)

    def reach(self, reached: Reached) -> None:
        """Plan from what was saved, by this machine or by that of another process."""
        self._before, self._reached = self._reached, reached
        self._not_before = None

    def resume(self, progress: Progress, *, step: int, now: float) -> None:
        """Continue after *step*, -1 before the first of this attempt, from *progress*, which was saved with it."""
        if progress.emitted != self._emitted:
            self._emitted, self._emitted_at = progress.emitted, now
        self._progress = progress
        self.reach(Reached.by(progress, step=step))

    def plan(self, now: float) -> Generator[Planning, Any, Sequence[PlannedSlice]]:
        """Plan the next step and return its slices; none while there is nothing to do, or it is too early.

        Raises: ContractError; whatever the actions raise.
        """
        if self.is_over:
            return ()
        if self._not_before is None:
            self._not_before = now + (yield from self._pause_s())
        reached, too_early = self._reached, now < self._not_before
        after, repeated = reached.latest, None
        if not self._asked_for_repeat:
            if too_early:
                return ()
            self._asked_for_repeat = True
            repeated = yield Repeat(start=reached.token, after=after)
        if repeated is None:
            step = reached.step + 1
            start = yield AddRescans(step=step, start=reached.token, after=after)
            if too_early and start is reached.token:
                return ()
            end = yield Advance(start=start, after=after, limit=self._rules.limit)
            if end == start:
                return ()
        else:
            step, start, end = repeated.step, reached.token, repeated.end
        planned_by = None if repeated is None else repeated.planned_by
        yield Planned(step=step, end=end)
        cut = yield Cut(step=step, start=start, end=end, after=after, repeated=repeated)
        self._require_slices(cut.slices)
        if repeated is None:
            yield SavePlan(step=step, start=start, end=end, after=after, slices=cut.slices, blocked=cut.blocked)
        parts = max(1, self._rules.delivery_tasks // len(cut.slices))
        return [
            PlannedSlice(
                slice=slice_,
                info=SliceInfo(step=step, index=number * parts, lower=slice_.lower, planned_by=planned_by),
                slices=len(cut.slices) * parts,
                end=end,
                blocked=cut.blocked,
                again=cut.again and reached.step < 0,
                trace=cut.trace,
                parts=parts,
            )
            for number, slice_ in enumerate(cut.slices)
        ]

    def complete(self, reports: Sequence[SliceReport | None], now: float) -> Generator[Completing, None, None]:
        """Make a step count whose slices have been read, emitted and flushed. The order never changes.

        Raises: ContractError, before anything is saved; whatever the actions raise. After an exception the attempt
        must start again from what was saved.
        """
        step = complete_step(reports)
        planned, marks = step[0].planned, [mark for report in step for mark in report.marks]
        _require_forward(self.progress, marks)
        progress = folded(self.progress, planned.end, marks)
        yield Save(step=planned.info.step, progress=progress, reports=step)
        self._progress = progress
        self.reach(Reached.by(progress, step=planned.info.step))
        mark = progress.resolved
        if self._is_due(mark, now):
            yield EmitResolved(mark=mark, latest=progress.latest)
            self._emitted, self._emitted_at = mark, now
            self._progress = replace(progress, emitted=mark)
        yield Release(token=progress.token)

    def _pause_s(self) -> Generator[Planning, Any, float]:
        """Return how long the next step must wait, so that steps are `apart_s` of the source's time apart.

        Counted from where the last step ended: a changefeed that is behind does not wait. Nor does one whose last step
        resolved nothing: it scans. Of several sources each has its own clock, and one that is out of reach holds up the
        high-water mark.
        """
        before, reached = self._before, self._reached
        since: Timestamp | None = reached.latest if reached.high_water > before.high_water else None
        if self._rules.is_sharded:
            since = last_moved(before.token, reached.token)
        if since is None or not self._rules.apart_s:
            return 0.0
        clock: Timestamp = yield ReadClock()
        behind_s = (clock.wall - since.wall) / 1e9
        return self._rules.apart_s - max(0.0, behind_s)  # the source's clock may have gone back

    def _require_slices(self, slices: Sequence[Slice]) -> None:
        owner, resolved = self._rules.rangefeed, self._reached.high_water
        if not slices:
            raise ContractError(f"{owner} broke its contract: slices() must return at least one slice")
        for slice_ in slices:
            if resolved and slice_.lower <= resolved:
                raise ContractError(
                    f"{owner} broke its contract: a slice begins at {slice_.lower}, but {resolved} is resolved already"
                )

    def _is_due(self, mark: Timestamp, now: float) -> bool:
        interval_s = self._rules.resolved_interval_s
        if interval_s is None or mark <= self._emitted:
            return False
        apart_s = (mark.wall - self._emitted.wall) / 1e9
        # The source's clock may have gone back, or the changefeed is slow.
        return not self._emitted or apart_s >= interval_s or now - self._emitted_at >= max(interval_s, _MAX_APART_S)


def folded(progress: Progress, end: Token, marks: Sequence[SpanMark]) -> Progress:
    """Return *progress* after a step that ended at *end* with *marks*. What is resolved never moves back."""
    frontier = progress.frontier.copy()
    for mark in marks:
        if mark.resolved:
            frontier.forward(mark.span, mark.timestamp)
    latest = max([progress.latest, *(mark.timestamp for mark in marks)])
    token = token_with_marks(end, marks, frontier=frontier, before=progress.latest)
    return replace(progress, token=token, frontier=frontier, latest=latest)


def _require_forward(progress: Progress, marks: Sequence[SpanMark]) -> None:
    for mark in marks:
        if mark.resolved and mark.timestamp < (reached := progress.frontier.of(mark.span)):
            raise ContractError(
                f"rangefeed broke its contract: span {mark.span} is resolved at {mark.timestamp}, below {reached},"
                " which an earlier step reached"
            )
