"""The planner: carries out what the step machine plans, with the source's planner and the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cdc_core.delivery.tracing import StepTrace
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.plans import Plans
from cdc_core.engine.slices import PlannedSlice
from cdc_core.engine.step_actions import (
    AddRescans,
    Advance,
    Cut,
    CutStep,
    Planned,
    Planning,
    ReadClock,
    Repeat,
    SavePlan,
)
from cdc_core.engine.step_machine import Reached, StepMachine, StepRules, perform
from cdc_core.rangefeed_values import Rescan, Token
from cdc_core.step_planner import StepPlanner
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

Offset = dict[str, Any]
"""Where a step ends: `{"step": n, "token": …}`."""


class Planner:
    """Plans the steps of one attempt. Lives in the planner's process, for as long as the attempt lasts."""

    def __init__(self, config: AttemptConfig, planner: StepPlanner) -> None:
        feed = config.feed
        self._name, self._epoch, self._is_sharded = feed.name, feed.epoch, feed.is_sharded
        self._planner = planner
        self._store = config.open_store(alone=True)
        self._channel = config.channel
        self._blocks_keys = feed.dead_letter is not None and feed.options.dead_letter_order == "block_key"
        self._plans = Plans(feed, planner, self._store)
        self._rescans = Rescans(feed.name, feed.epoch, planner, self._store, self._channel.rescans)
        self._machine = StepMachine(StepRules.of(feed))
        self._reached_step: int | None = None
        self._plan: Generator[Planning, Any, Sequence[PlannedSlice]] | None = None
        """Of the step whose end is known, until its slices are asked for."""
        self._slices: Sequence[PlannedSlice] = ()

    def next_step(self, start: Offset) -> Offset:
        """Return the offset at which the step after *start* ends; *start* itself while it is too early for one.

        A changefeed that ends has no step after the scan or the end: the driver sees later that it is complete.
        """
        self._reach(start)
        plan = self._machine.plan(time.monotonic())
        try:
            action = next(plan)
            while not isinstance(action, Planned):
                action = plan.send(self._do(action))
        except StopIteration:
            return start
        self._plan = plan
        return {"step": action.step, "token": action.end}

    @property
    def wait_s(self) -> float:
        """How long it is still too early for a step."""
        return self._machine.wait_s(time.monotonic())

    def slices(self) -> Sequence[PlannedSlice]:
        """Return the slices of the step whose end `next_step` returned last. Raises: ContractError."""
        plan, self._plan = self._plan, None
        if plan is not None:
            self._slices = perform(plan, self._do)
        return self._slices

    def forget_claims(self, end: Offset) -> None:
        """Forget which tasks of steps before the one that ends at *end* took which slices."""
        self._store.planned_steps.forget_claims(self._name, before=(self._epoch, end["step"]))

    def release_connections(self) -> None:
        """Give back the connection to the store until the next call: each changefeed has a planner of its own."""
        self._store.release_connections()

    def close(self) -> None:
        self._planner.close()
        self._store.close()

    def _do(self, action: Planning) -> object:
        match action:
            case ReadClock():
                return self._planner.now()
            case Repeat():
                return self._plans.repeat(action.start, after=action.after, blocked=self._blocked())
            case AddRescans():
                return self._rescans.added_to(action.start, step=action.step, after=action.after)
            case Advance():
                return self._planner.advance(action.start, after=action.after, limit=action.limit)
            case Planned():
                return None
            case Cut():
                blocked, repeated, requests = self._blocked(), action.repeated, self._channel.traces()
                return CutStep(
                    slices=self._planner.slices(action.start, action.end, after=action.after)
                    if repeated is None
                    else repeated.slices,
                    blocked=blocked,
                    trace=StepTrace(requests=requests, planned=time.time()) if requests else None,
                    again=self._plans.first_began_before,
                )
            case SavePlan():
                self._plans.save(action)
                return None

    def _blocked(self) -> Sequence[tuple[str, str]]:
        return self._store.dead_letters.blocked_keys(self._name) if self._blocks_keys else ()

    def _reach(self, start: Offset) -> None:
        """Have the machine plan on from the step that ended at *start*.

        The coordinator has saved it: Spark plans a step only after the one before was committed. The token of several
        sources says more than the step's offset.
        """
        step = start["step"]
        if self._reached_step == step:
            return
        saved = None if self._is_sharded else self._channel.saved()
        if saved is not None and saved.step == step:
            reached = Reached(step=step, token=start["token"], latest=saved.latest, high_water=saved.high_water)
        else:
            progress = self._store.progress.load(self._name)
            assert progress is not None
            reached = Reached.by(progress, step=step)
            reached = reached if self._is_sharded else replace(reached, token=start["token"])
        self._machine.reach(reached)
        self._reached_step = step


_POLL_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """Rescans by their numbers in the store, and the token that holds them. Their rows are later than `began`."""

    numbers: list[int]
    token: Token
    began: Timestamp


class Rescans:
    """The rescans of one attempt. Lives in the planner's process.

    They wait in the store until the step that holds them is saved. A crash before that repeats them, and loses none.
    The store is asked at the start, and whenever what *asked* returns has changed: see `AttemptChannel.rescans`.
    """

    def __init__(
        self, name: str, epoch: int, planner: StepPlanner, store: ProgressStore, asked: Callable[[], str]
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._planner = planner
        self._store = store
        self._asked = asked
        self._answered: str | None = None
        self._taken: _Taken | None = None
        self._held_by = 0
        """The step that is to hold what was taken. Until it is planned, it is asked for again and again."""
        self._poll_at = 0.0

    def added_to(self, start: Token, *, step: int, after: Timestamp) -> Token:
        """Return *start*, from which *step* is planned next, with all rescans that wait: *start* itself without any."""
        if self._taken is not None and step > self._held_by:
            self._begin(self._taken)
        if self._taken is None:
            self._taken = self._take(start, after)
        self._held_by = step
        return start if self._taken is None else self._taken.token

    def _take(self, start: Token, after: Timestamp) -> _Taken | None:
        asked, now = self._asked(), time.monotonic()
        if asked == self._answered or now < self._poll_at:
            return None
        self._poll_at = now + _POLL_INTERVAL_S
        waiting = self._store.rescans.waiting(self._name, new_slot=False)
        wanted = [Rescan(table=found.table, where=found.where) for found in waiting]
        token = self._planner.scan_again(start, wanted) if waiting else start
        if token is None:
            return None
        self._answered = asked
        if not waiting:
            return None
        taken = _Taken(numbers=[found.number for found in waiting], token=token, began=after)
        if token != start:
            return taken
        self._begin(taken)  # there are no rows to read
        return None

    def _begin(self, taken: _Taken) -> None:
        self._store.rescans.begin(self._name, self._epoch, taken.numbers, taken.began)
        self._taken = None
