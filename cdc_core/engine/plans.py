"""Saved plans: what a step holds, saved before anything of it runs, so that another attempt can repeat it.

A step that broke off has left files, or requests with an idempotency key, under names made of (epoch, step, slice). An
attempt that plans the same changes again would cut them in other places and give them other names: every row comes
again. An attempt that repeats the plan first makes the same names with the same content.

It is cut as it was then, for as many slices at a time as could be read then, whatever the cluster is like now.

A plan is repeated only when its slices are the same in every detail. With other slices (another limit, a table whose
shape changed) a name would get other rows than before, and a consumer that skips names it has
read would miss rows. Then the changes are planned again, under names of the new attempt: rows repeat, none is lost.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any, Self

from cdc_core.config.component import Component
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.step_actions import RepeatedStep, SavePlan
from cdc_core.masking import mask, masked_uri
from cdc_core.rangefeed_values import Token
from cdc_core.step_planner import Slice, StepPlanner
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

log = logging.getLogger(__name__)

_MAX_REPEATS = 10
"""A plan that was repeated so often and never finished may itself be the reason. Well below `max_attempts`."""
_DECIDES_NOTHING = (
    "resolved",
    "min_checkpoint_frequency",
    "initial_scan",
    "on_error",
    "dead_letter_max",
    "retry_backoff",
    "max_retry_backoff",
    "max_attempts",
    "give_up_after",
    "executor_wait",
)
"""Options of the changefeed that change neither what is in a slice nor the names under which it arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one step holds. `epoch` is that of the attempt that planned it; `slices` and `setting` are digests.

    `parallelism` is how many slices could be read at the same time when it was cut.
    """

    epoch: int
    step: int
    start: Token
    end: Token
    after: Timestamp
    slices: str
    setting: str
    parallelism: int
    repeats: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "after": str(self.after)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises: ValueError, TypeError and KeyError when *value* is of another version."""
        return cls(**{**value, "after": Timestamp.parse(value["after"])})


class Plans:
    """The plans of one attempt, and the plan that an earlier attempt left. Lives in the planner's process.

    Nothing is saved for a source that never repeats a step.
    """

    def __init__(self, feed: ResolvedChangefeed, planner: StepPlanner, store: ProgressStore) -> None:
        self._feed = feed
        self._planner = planner
        self._repeats = feed.rangefeed.registration.repeats_steps
        self._store = store
        self._setting = ""
        self.first_began_before = False
        """Whether an earlier attempt began the step after the token that this one starts from, and did not save it."""

    def repeat(self, start: Token, *, after: Timestamp, blocked: Sequence[Any]) -> RepeatedStep | None:
        """Return the step after *start* as an earlier attempt planned it; None to plan it again.

        Once an attempt, before its first step. Raises: FencedError; what the rangefeed raises.
        """
        if not self._repeats:
            return None
        plan = self._saved()
        if plan is None or (plan.start, plan.after) != (start, after) or plan.epoch == self._feed.epoch:
            return None
        self.first_began_before = True
        if plan.repeats >= _MAX_REPEATS:
            log.info("planning step %d of attempt %d again: it failed too often", plan.step, plan.epoch)
            return None
        if plan.setting != self._own_setting():
            log.info("planning step %d of attempt %d again: an option or a version changed", plan.step, plan.epoch)
            return None
        with self._cutting_as(plan) as planner:
            slices = planner.repeat(start, plan.end, after=after)
        if slices is None or _digest(slices, blocked) != plan.slices:
            log.info("planning step %d of attempt %d again: its slices are not the same", plan.step, plan.epoch)
            return None
        again = replace(plan, repeats=plan.repeats + 1)
        self._store.planned_steps.save_plan(self._feed.name, self._feed.epoch, again.to_json())
        log.info("repeating step %d of attempt %d", plan.step, plan.epoch)
        return RepeatedStep(step=plan.step, end=plan.end, planned_by=plan.epoch, slices=slices)

    def save(self, plan: SavePlan) -> None:
        """Make the plan durable, before any of its slices runs. Raises: FencedError."""
        if not self._repeats:
            return
        saved = Plan(
            epoch=self._feed.epoch,
            step=plan.step,
            start=plan.start,
            end=plan.end,
            after=plan.after,
            slices=_digest(plan.slices, plan.blocked),
            setting=self._own_setting(),
            parallelism=self._feed.parallelism,
        )
        self._store.planned_steps.save_plan(self._feed.name, self._feed.epoch, saved.to_json())

    @contextmanager
    def _cutting_as(self, plan: Plan) -> Iterator[StepPlanner]:
        """Yield a planner whose context has the parallelism of *plan*: the attempt's own where that is the same."""
        if plan.parallelism == self._feed.parallelism:
            yield self._planner
            return
        with closing(Parts(replace(self._feed, parallelism=plan.parallelism)).open_planner()) as planner:
            yield planner

    def _saved(self) -> Plan | None:
        value = self._store.planned_steps.load_plan(self._feed.name)
        try:
            return None if value is None else Plan.from_json(value)
        except (ValueError, TypeError, KeyError):  # of another version of this code
            return None

    def _own_setting(self) -> str:
        self._setting = self._setting or _setting(self._feed)
        return self._setting


def _digest(slices: Sequence[Slice], blocked: Sequence[Any]) -> str:
    """Return a digest of the slices in every detail. A `repr` that shows an address never agrees with another."""
    return hashlib.sha256(repr((list(slices), sorted(map(repr, blocked)))).encode()).hexdigest()


def _setting(feed: ResolvedChangefeed) -> str:
    """Return a digest of everything else that decides what slices hold: options, plugins, versions."""
    options = {name: value for name, value in asdict(feed.options).items() if name not in _DECIDES_NOTHING}
    setting = {
        "tables": [name.full for name in feed.table_names],
        "source": feed.shown_source,
        "destination": feed.shown_destination,
        "dead_letter": masked_uri(options.pop("dead_letter") or ""),
        "options": options,
        "components": [_component(each) for each in (feed.rangefeed, feed.encoder, feed.sink)],
        "envelope": asdict(feed.envelope()),
        "installed": _installed(),
    }
    # Not a digest of secrets: from one in the store a weak password could be guessed.
    text = mask(json.dumps(setting, sort_keys=True, default=repr), feed.secrets())
    return hashlib.sha256(text.encode()).hexdigest()


def _component(component: Component[Any]) -> list[Any]:
    registration = component.registration
    declared = {each.name: _plain(getattr(registration, each.name)) for each in fields(registration)}
    return [declared, dict(component.values)]


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value


@cache
def _installed() -> list[str]:
    """Return the versions of Python and of all distributions: any of them may decide on a byte of a file."""
    found = {f"{distribution.name} {distribution.version}" for distribution in distributions()}
    return [sys.version, *sorted(found)]
