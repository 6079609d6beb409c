"""What people may ask of a job in each of its states: one rule for every door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_core.errors import ConfigError
from cdc_core.store.job_values import FINISHED, FOLLOWING, RESTING, REVERTED, JobRecord, JobState

__all__ = ["RULES", "RefusedError", "Rule", "UnknownError", "Verb", "require"]

Verb = Literal[
    "pause", "stop", "resume", "restart", "alter", "cancel", "drop", "forget", "rescan", "move", "replay", "own"
]
"""`stop` is a pause that says so, as Kafka Connect has it. `drop` deletes what the store knows, `forget` also when
something may be left at the source. To `move` a job is also to have it begin a new history.
"""


class UnknownError(ConfigError):
    """The store knows no changefeed, job, schedule or node of this name."""


class RefusedError(ConfigError):
    """A verb that the `state` of its job refuses for now; nothing was changed. `remedy` is what to do instead."""

    def __init__(self, what: str, *, state: JobState, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.state, self.remedy = state, remedy


@dataclass(frozen=True, slots=True)
class Rule:
    """The states in which a verb is done, and those in which what it asks for is so already: nothing is changed then.

    In all other states it is refused.
    """

    does: frozenset[JobState]
    holds: frozenset[JobState] = frozenset()


_WANTED: frozenset[JobState] = frozenset({"running", "waiting"})
_PAUSING: frozenset[JobState] = frozenset({"pause-requested"})
_ENDING: frozenset[JobState] = frozenset({"cancel-requested", "reverting"})
_LIVE = _WANTED | _PAUSING | RESTING
RULES: Mapping[Verb, Rule] = {
    "pause": Rule(_WANTED, holds=_PAUSING | RESTING),
    "stop": Rule(_LIVE),
    "resume": Rule(_PAUSING | RESTING, holds=_WANTED),
    "restart": Rule(frozenset({"running", "failed"}), holds=frozenset({"waiting", "pause-requested", "paused"})),
    "alter": Rule(_LIVE),
    "cancel": Rule(_LIVE | (FINISHED - REVERTED), holds=_ENDING | frozenset({"canceled"})),
    "drop": Rule(REVERTED),
    "forget": Rule(RESTING | FINISHED),
    "rescan": Rule(_LIVE),
    "move": Rule(RESTING),
    "replay": Rule(RESTING | FINISHED),
    "own": Rule(frozenset(FOLLOWING)),
}


def require(job: JobRecord, verb: Verb) -> None:
    """Return when *verb* may be asked of *job* now. Raises: RefusedError."""
    name, state, rule = job.name, job.state, RULES[verb]
    if state in rule.does | rule.holds and not (job.is_leaving or (job.has_left and verb == "replay")):
        return
    if job.is_leaving:
        what, _, remedy = (job.reason or "").partition("; ")
        what = f"cannot be changed here: {what}"
    elif state in FINISHED:
        what, remedy = f"has ended ({state}): {job.reason or 'everything is delivered'}", "create another job"
        if state == "revert-failed":
            remedy = f"try again with `cdc cancel {name}`, or forget it with `cdc drop {name} --forget-only`"
        elif verb == "replay":
            remedy = "ask that job for it"
        elif verb == "cancel":
            remedy = f"remove it with `cdc drop {name}`"
    elif state in _ENDING:
        what, remedy = f"is about to end ({state})", "wait until it has ended"
    elif verb in ("drop", "forget"):
        what, remedy = f"is {state}", f"end it with `cdc cancel {name}`"
    else:
        what = f"is {state}"
        remedy = "wait until it is paused" if state == "pause-requested" else f"pause it first: `cdc pause {name}`"
    raise RefusedError(f"job '{name}' {what}", state=state, remedy=remedy)
