"""The tables of docs/job-states.md and docs/nodes.md. What each state means is written here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from pages import replaced, table

from cdc_core.jobs.settings import NodeSettings
from cdc_core.options import describe
from cdc_core.store.job_values import FINISHED, FOLLOWING, RUNNABLE, JobState
from cdc_core.store.verbs import RULES

STATES = Path(__file__).with_name("job-states.md")
NODES = Path(__file__).with_name("nodes.md")
_MEANINGS: dict[JobState, str] = {
    "running": "a node runs the job, or is about to",
    "waiting": "no live node matches its `execution_locality`; the job runs again when such a node joins",
    "pause-requested": "a pause was requested; the node finishes the running step first",
    "paused": "no node runs the job, but its source retains history for it; it can be altered and resumed",
    "failed": "an error that no retry can fix has stopped the job; otherwise like `paused`",
    "cancel-requested": "a cancellation was requested; the node finishes the running step first",
    "reverting": "the job was canceled; a node drops what the job created at its source",
    "canceled": "ended by `cdc cancel`, with nothing left at its source; or a job in another store continues it",
    "succeeded": 'a job with `end_time`, or `initial_scan = "only"`, has delivered everything',
    "revert-failed": "ended, but what the job created at its source could not be dropped; `cdc cancel` tries again",
}
assert _MEANINGS.keys() == FOLLOWING.keys()


def generated() -> Iterator[tuple[Path, str]]:
    """Yield both pages with the tables that the code has now."""
    states = [(f"`{state}`", meaning, _needs(state), _next(state)) for state, meaning in _MEANINGS.items()]
    page = replaced(STATES.read_text(), "states", table(["state", "meaning", "needs a node", "may become"], states))
    doors = [
        (
            verb,
            _codes(rule.commands),
            _codes(rule.statements) or f"none: {rule.instead}",
            _codes(rule.requests),
            _capitals(rule.actions),
            _codes(rule.tools),
        )
        for verb, rule in RULES.items()
    ]
    page = replaced(page, "doors", table(["verb", "command", "statement", "request", "on the page", "tool"], doors))
    rules = [(verb, _states(rule.does), _states(rule.holds)) for verb, rule in RULES.items()]
    yield STATES, replaced(page, "rules", table(["verb", "takes effect in", "changes nothing in"], rules))
    options = [(f"`--{row.name.replace('_', '-')}`", row.default, row.doc) for row in describe(NodeSettings)]
    yield NODES, replaced(NODES.read_text(), "options", table(["option of `cdc node`", "default", "meaning"], options))


def _needs(state: JobState) -> str:
    return "yes" if state in RUNNABLE else "no, finished" if state in FINISHED else "no"


def _next(state: JobState) -> str:
    return _codes(each for each in FOLLOWING if each in FOLLOWING[state])


def _states(found: Collection[JobState]) -> str:
    return "all" if found == FOLLOWING.keys() else _codes(state for state in FOLLOWING if state in found)


def _capitals(actions: Iterable[str]) -> str:
    return ", ".join(map(str.capitalize, actions))


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
