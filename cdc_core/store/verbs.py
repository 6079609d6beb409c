"""What people may ask of a job in each of its states, and where: one table for every door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_core.errors import ConfigError
from cdc_core.store.job_values import FINISHED, FOLLOWING, RESTING, REVERTED, JobRecord, JobState

Verb = Literal[
    "pause", "stop", "resume", "restart", "alter", "cancel", "drop", "forget", "rescan", "move", "replay", "own"
]
"""`stop` is a pause that says so, as Kafka Connect has it. `drop` deletes what the store knows, `forget` also when
something may be left at the source. To `move` a job is also to have it begin a new history.
"""


class UnknownError(ConfigError):
    """The store has no changefeed, job, schedule or node of this name."""


class BusyError(ConfigError):
    """There are enough of these now. The same may be asked for again later; nothing was changed."""


class RefusedError(ConfigError):
    """The `state` of the job does not allow the verb; nothing was changed. `remedy` says what to do instead.

    `state` is None if the job does not exist yet, and the state of the nodes does not allow the verb.
    """

    def __init__(self, what: str, *, state: JobState | None, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.state, self.remedy = state, remedy


_SHOWN = "`cdc show {name}` shows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A verb: the states in which it is done, those in which what it asks for is so already, and who may ask for it.

    In all other states it is refused. The doors are commands, statements, requests of REST, actions of the page, and
    tools of `cdc mcp --allow-changes`; `instead` does what a verb does that has no statement. `of_runs`: it may be
    asked of what `cdc run` runs, too; `for_runs` is what to do about that where only jobs are served.
    """

    does: frozenset[JobState]
    holds: frozenset[JobState] = frozenset()
    commands: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    instead: str = ""
    requests: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    of_runs: bool = False
    for_runs: str = _SHOWN


_WANTED: frozenset[JobState] = frozenset({"running", "waiting"})
_PAUSING: frozenset[JobState] = frozenset({"pause-requested"})
_ENDING: frozenset[JobState] = frozenset({"cancel-requested", "reverting"})
_LIVE = _WANTED | _PAUSING | RESTING
_PAUSED: frozenset[JobState] = frozenset({"paused"})
RULES: Mapping[Verb, Rule] = {
    "pause": Rule(
        does=_WANTED,
        holds=_PAUSING | RESTING,
        commands=("cdc pause NAME",),
        statements=("PAUSE JOB 'name'",),
        requests=("PUT /connectors/{name}/pause",),
        actions=("pause",),
        tools=("pause_changefeed",),
        of_runs=True,
    ),
    "stop": Rule(does=_LIVE, instead="use PAUSE JOB", requests=("PUT /connectors/{name}/stop",)),
    "resume": Rule(
        does=_PAUSING | RESTING,
        holds=_WANTED,
        commands=("cdc resume NAME",),
        statements=("RESUME JOB 'name'",),
        requests=("PUT /connectors/{name}/resume",),
        actions=("resume",),
        tools=("resume_changefeed",),
        of_runs=True,
    ),
    "restart": Rule(
        does=frozenset({"running", "failed"}),
        holds=frozenset({"waiting", "pause-requested", "paused"}),
        instead="use PAUSE JOB and then RESUME JOB",
        requests=("POST /connectors/{name}/restart", "POST /connectors/{name}/tasks/{task}/restart"),
        actions=("restart",),
        tools=("restart_changefeed",),
        for_runs="stop the run, and start it again",
    ),
    "alter": Rule(
        does=_LIVE,
        commands=("cdc alter NAME",),
        statements=("ALTER CHANGEFEED 'name'",),
        requests=("PUT /connectors/{name}/config", "PATCH /connectors/{name}/config"),
        actions=("alter",),
        of_runs=True,
        for_runs="change its file, or its tables with `cdc alter {name} --store DIR|URL`",
    ),
    "cancel": Rule(
        does=_LIVE | (FINISHED - REVERTED),
        holds=_ENDING | frozenset({"canceled"}),
        commands=("cdc cancel NAME",),
        statements=("CANCEL JOB 'name'",),
        requests=("POST /v1/jobs/{name}/cancel", "DELETE /connectors/{name}"),
        actions=("cancel",),
        for_runs="stop the run, and then use `cdc drop {name} --store DIR|URL`",
    ),
    "drop": Rule(
        does=REVERTED,
        commands=("cdc drop NAME",),
        instead="use `cdc drop`",
        requests=("DELETE /connectors/{name}",),
    ),
    "forget": Rule(
        does=RESTING | FINISHED,
        commands=("cdc drop NAME --forget-only",),
        instead="use `cdc drop --forget-only`",
    ),
    "rescan": Rule(does=_LIVE, commands=("cdc rescan NAME TABLE",), instead="use `cdc rescan`"),
    "move": Rule(
        does=RESTING,
        commands=("cdc move NAME", "cdc rescan NAME --all --new-slot"),
        instead="use `cdc move`",
        requests=("PATCH /connectors/{name}/offsets", "DELETE /connectors/{name}/offsets"),
    ),
    "replay": Rule(
        does=RESTING | FINISHED,
        commands=("cdc replay-dead-letters NAME",),
        instead="use `cdc replay-dead-letters`",
        requests=("POST /v1/jobs/{name}/dead-letters/replay",),
        actions=("replay", "discard"),
        for_runs="stop the run, and then use `cdc replay-dead-letters {name} --store DIR|URL`",
    ),
    "own": Rule(
        does=frozenset(FOLLOWING),
        commands=("cdc owner NAME USER",),
        statements=("ALTER JOB 'name' OWNER TO user",),
        for_runs="only jobs have owners",
    ),
}
"""Every verb on jobs: the documentation of jobs, OpenAPI, the page's buttons and all refusals come from here."""
GRANTED: Mapping[str, frozenset[JobState]] = {
    **{request: rule.does | rule.holds for rule in RULES.values() for request in rule.requests},
    "DELETE /connectors/{name}": frozenset(FOLLOWING) - _ENDING - {"canceled"},
    "PUT /connectors/{name}/config": _LIVE | {"canceled"},
    "PATCH /connectors/{name}/offsets": _PAUSED,
    "DELETE /connectors/{name}/offsets": _PAUSED,
}
"""The states in which each request is granted. The last four follow Kafka Connect, where a connector that is ending or
canceled no longer exists, and only a stopped one can be moved.
"""


def not_a_job(name: str, verb: Verb | None) -> UnknownError:
    """Return the refusal of *verb*, or of a look, where only jobs are served and `cdc run` runs the changefeed."""
    instead = _SHOWN if verb is None else RULES[verb].for_runs
    return UnknownError(f"changefeed '{name}' is run by `cdc run` and is not a job; {instead.format(name=name)}")


def require(job: JobRecord | None, verb: Verb) -> None:
    """Return when *verb* may be asked of *job* now. Raises: RefusedError.

    Of what `cdc run` runs, the state says only whether it is paused; see `cdc_core.changefeeds.finding.stopped`.
    """
    if job is None or job.is_run:
        return
    name, state, rule = job.name, job.state, RULES[verb]
    if state in rule.does | rule.holds and not (job.is_leaving or (job.has_left and verb == "replay")):
        return
    if job.is_leaving:
        what, _, remedy = (job.reason or "").partition("; ")
        what = f"cannot be changed here: {what}"
    elif state in FINISHED:
        what, remedy = f"has ended ({state}): {job.reason or 'everything is delivered'}", "create another job"
        if state == "revert-failed":
            remedy = f"try again with `cdc cancel {name}`, or forget the job with `cdc drop {name} --forget-only`"
        elif verb == "replay":
            remedy = "use that job instead"
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


def require_free(job: JobRecord | None) -> None:
    """Return when *job*, which has the name of a job that is to be created, has ended. Raises: RefusedError."""
    if job is None or job.is_run or (job.state in FINISHED and not job.is_leaving):
        return
    if job.is_leaving:
        what, _, remedy = (job.reason or "").partition("; ")
        raise RefusedError(f"changefeed '{job.name}' cannot start over here: {what}", state=job.state, remedy=remedy)
    remedy = "choose another name"
    if job.state in RESTING:
        remedy = f"continue it with `cdc resume {job.name}`, end it with `cdc cancel {job.name}`, or {remedy}"
    raise RefusedError(f"changefeed '{job.name}' is already a job ({job.state})", state=job.state, remedy=remedy)


def require_run(job: JobRecord | None) -> None:
    """Return when *job*, which has the name of what `cdc run` is to run, is its own. Raises: ConfigError."""
    if job is None or job.is_run:
        return
    if job.is_leaving:
        raise ConfigError(f"changefeed '{job.name}' cannot run with this store: {job.reason}")
    what = f"is a job, which nodes run ({job.state})"
    if job.state in FINISHED:
        what = f"was a job and has ended ({job.state}): {job.reason or 'everything is delivered'}"
    raise ConfigError(f"changefeed '{job.name}' {what}; see `cdc show {job.name}`, or choose another name")
