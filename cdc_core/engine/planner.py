"""The planner: when the next step of a changefeed begins, and what its slices are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.delivery.tracing import StepTrace
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.plans import Plans
from cdc_core.engine.rescans import Rescans
from cdc_core.engine.time_range import TimeRange
from cdc_core.errors import ContractError
from cdc_core.rangefeed import Token
from cdc_core.shards.marks import last_moved
from cdc_core.sink import SliceInfo
from cdc_core.step_planner import Slice, StepLimit, StepPlanner
from cdc_core.timestamp import Timestamp

__all__ = ["Offset", "PlannedSlice", "Planner"]

Offset = dict[str, Any]
"""Where a step ends: `{"step": n, "token": …}`; with `planned_by` it ends a step that an earlier attempt planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSlice:
    """One slice of a step on its way to an executor. `slice` is None where there is nothing to do. Picklable."""

    slice: Slice | None
    info: SliceInfo
    slices: int
    """How many slices the step has."""
    end: Token
    blocked: Sequence[Any] = ()
    again: bool = False
    """Whether an earlier attempt began the step, and may have delivered some of its rows."""
    trace: StepTrace | None = None
    """Which changes are traced, None for none."""


class Planner:
    """Plans the steps of one attempt. Lives in the planner's process, for as long as the attempt lasts."""

    def __init__(self, config: AttemptConfig, planner: StepPlanner) -> None:
        feed, options = config.feed, config.feed.options
        self._name, self._epoch = feed.name, feed.epoch
        self._owner = feed.rangefeed.owner
        self._planner = planner
        self._store = config.open_store(alone=True)
        self._channel = config.channel
        self._limit = StepLimit(rows=options.max_step_rows, bytes=options.max_step_bytes)
        self._frequency_s = feed.min_checkpoint_frequency_s
        self._scans_only = options.initial_scan == "only"
        self._within = TimeRange.of(options)
        self._blocks_keys = feed.dead_letter is not None and options.dead_letter_order == "block_key"
        self._plans = Plans(feed, planner, self._store)
        self._rescans = Rescans(feed.name, feed.epoch, planner, self._store, self._channel.rescans)
        self._repeated: Sequence[Slice] | None = None
        self._begun = False
        self._latest = Timestamp()
        self._resolved = Timestamp()
        self._latest_of: int | None = None
        self._token: Token = {}
        """The token of the step that was saved last. That of several sources says more than the step's offset."""
        self._sharded = feed.is_sharded
        self._not_before = 0.0

    def next_step(self, start: Offset) -> Offset:
        """Return the offset at which the step after *start* ends; *start* itself while it is too early for one.

        A changefeed that ends has no step after the scan or the end: the driver sees later that it is complete.
        """
        after = self._after(start)
        if self._within.over(self._resolved) or (self._scans_only and self._resolved):
            return start
        too_early = time.monotonic() < self._not_before
        if not self._begun:
            if too_early:
                return start
            self._begun = True
            found = self._plans.repeat(self._token, after=after, blocked=self._blocked())
            if found is not None:
                plan, self._repeated = found
                return {"step": plan.step, "token": plan.end, "planned_by": plan.epoch}
        begin = self._rescans.added_to(self._token, step=start["step"], after=after)
        if too_early and begin is self._token:
            return start
        end = self._planner.advance(begin, after=after, limit=self._limit)
        if end == begin:
            return start
        self._rescans.planned(start["step"] + 1)
        self._not_before = 0.0
        return {"step": start["step"] + 1, "token": end}

    @property
    def wait_s(self) -> float:
        """How long it is still too early for a step."""
        return max(0.0, self._not_before - time.monotonic())

    def slices(self, start: Offset, end: Offset) -> list[PlannedSlice]:
        """Return the slices of the step from *start* to *end*. Raises: ContractError."""
        after, planned_by, blocked = self._after(start), end.get("planned_by"), self._blocked()
        begin = self._rescans.start_of(end["step"], self._token)
        if planned_by is None:
            slices = self._planner.slices(begin, end["token"], after=after)
        else:
            assert self._repeated is not None
            slices = self._repeated
        if not slices:
            raise ContractError(f"{self._owner} broke its contract: slices() must return at least one slice")
        for slice_ in slices:
            if self._resolved and slice_.lower <= self._resolved:
                raise ContractError(
                    f"{self._owner} broke its contract: a slice begins at {slice_.lower}, but {self._resolved} is"
                    " resolved already"
                )
        if planned_by is None:
            self._plans.save(end["step"], start=begin, end=end["token"], after=after, slices=slices, blocked=blocked)
        trace = self._trace()
        return [
            PlannedSlice(
                slice=slice_,
                info=SliceInfo(step=end["step"], index=index, lower=slice_.lower, planned_by=planned_by),
                slices=len(slices),
                end=end["token"],
                blocked=blocked,
                again=self._plans.first_began_before and start["step"] < 0,
                trace=trace,
            )
            for index, slice_ in enumerate(slices)
        ]

    def forget_claims(self, end: Offset) -> None:
        """Forget which tasks of steps before the one that ends at *end* took which slices."""
        self._store.forget_claims(self._name, before=(self._epoch, end["step"]))

    def rest(self) -> None:
        """Give back the connection to the store until the next call: each changefeed has a planner of its own."""
        self._store.rest()

    def close(self) -> None:
        self._planner.close()
        self._store.close()

    def _blocked(self) -> Sequence[Any]:
        return self._store.blocked_keys(self._name) if self._blocks_keys else ()

    def _trace(self) -> StepTrace | None:
        """Return what the step that is being planned traces."""
        requests = self._channel.traces()
        return StepTrace(requests=requests, planned=time.time()) if requests else None

    def _after(self, start: Offset) -> Timestamp:
        """Return the latest timestamp of the step that ended at *start*, and set when the next one may begin.

        The coordinator has saved it: a step is planned only after the one before was committed.
        """
        if self._latest_of != start["step"]:
            before, token = self._resolved, start["token"]
            shown = None if self._sharded else self._channel.saved()
            if shown is not None and shown.step == start["step"]:
                self._latest, self._resolved = shown.latest, shown.high_water
            else:
                progress = self._store.load(self._name)
                assert progress is not None
                self._latest, self._resolved = progress.latest, progress.frontier.high_water
                token = progress.token if self._sharded else token
            self._latest_of = start["step"]
            since = self._latest if self._resolved > before else None
            if self._sharded:  # each has its own clock, and one that is out of reach holds up the high-water mark
                since = last_moved(self._token, token)
            self._token = token
            self._not_before = time.monotonic() + (0.0 if since is None else self._wait_s(since))
        return self._latest

    def _wait_s(self, since: Timestamp) -> float:
        """Return how long the next step must wait so that steps are min_checkpoint_frequency apart.

        Counted in the source's time, from *since*, where the last step ended: a changefeed that is behind does not
        wait. Nor does one whose last step resolved nothing: it scans.
        """
        if not self._frequency_s:
            return 0.0
        behind_s = (self._planner.now().wall - since.wall) / 1e9
        return self._frequency_s - max(0.0, behind_s)  # the source's clock may have gone back
