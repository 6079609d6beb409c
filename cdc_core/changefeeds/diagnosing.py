"""Why a changefeed does not move, and what to do about it, as far as its store can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_core.changefeeds.finding import Finder
from cdc_core.changefeeds.tracing import standing_text
from cdc_core.store.job_values import NOT_NOW, RESTING, JobRecord
from cdc_core.store.liveness import DONE
from cdc_core.store.reports import Report, report
from cdc_core.store.verbs import RULES
from cdc_core.telemetry.status import shown_moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A reason why a changefeed is not moving, or another problem. `remedy` is None if it passes on its own."""

    what: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Contains no secret. `summary` is one sentence. The causes are in the order in which to fix them."""

    report: Report
    summary: str
    causes: Sequence[Cause]

    @property
    def is_moving(self) -> bool:
        """Whether a run is alive that neither retries nor waits for a component."""
        found = self.report
        alive = found.is_alive and found.status is not None
        return alive and found.state == "running" and not _waits(found)

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values; docs/mcp.md explains each."""
        shown = self.report.to_json()
        names = ("name", "state", "high_water", "behind_s", "gauges", "dead_letters", "scan", "rows_per_s")
        return {
            **{name: shown[name] for name in names},
            "is_moving": self.is_moving,
            "summary": self.summary,
            "causes": [asdict(cause) for cause in self.causes],
        }


class Diagnosing(Finder):
    """The verb diagnose."""

    def diagnose(self, name: str) -> Diagnosis:
        """Return why the changefeed is not moving, without contacting the source or the sink. Raises: UnknownError."""
        known = self.known(name)
        found = report(self.store, known, now=datetime.now(UTC))
        causes = [*(_of_run(found) if found.job is None else _of_job(found, found.job)), *_of_any(found)]
        return Diagnosis(report=found, summary=standing_text(self.store, known), causes=causes)


def continues_with(report: Report) -> str:
    """Return the commands that continue a job that an error has stopped, unless the error names them."""
    job = report.job
    if job is None or not job.rests_for_error or "`cdc resume" in (job.reason or ""):
        return ""
    name = report.known.name
    return f"`cdc resume {name}` once the cause is fixed; `cdc alter {name}` changes its tables and options"


def _of_run(found: Report) -> Iterator[Cause]:
    """Yield what keeps a changefeed of `cdc run` from running."""
    name, values = found.known.name, {} if found.status is None else found.status.values
    start = "start it with `cdc run`"
    if found.known.paused is not None:
        what = f"it is paused: {found.known.paused.reason}"
        yield Cause(what=what, remedy=f"once the cause is fixed, `cdc resume FILE {name}`")
    elif found.state == "failed":
        yield Cause(what=str(values.get("error") or "its run failed"), remedy=f"fix the cause, then {start}")
    elif found.state == "silent" and found.status is not None:
        at, where = shown_moment(found.status.written_at), f"{values.get('host')} (process {values.get('pid')})"
        yield Cause(what=f"its run on {where} has not reported since {at}", remedy=start)
    elif found.state in ("new", "unknown", "stopped"):
        yield Cause(what="no run of the changefeed is alive", remedy=start)


def _of_job(found: Report, job: JobRecord) -> Iterator[Cause]:
    """Yield what keeps a job from running."""
    if job.rests_for_error:
        yield Cause(what=job.reason or f"it is {job.state}", remedy=continues_with(found) or None)
    elif job.state in RESTING:
        yield Cause(what=f"it is paused: {job.reason or 'no reason given'}", remedy=f"`cdc resume {job.name}`")
    elif job.node is None and job.finished is None:
        yield from _without_node(found, job)
    elif job.state == "revert-failed":
        yield Cause(what=job.reason or "it is revert-failed", remedy=f"`cdc cancel {job.name}` tries again")


def _without_node(found: Report, job: JobRecord) -> Iterator[Cause]:
    for node in found.nodes:
        if problem := node.problems.get(job.name):
            remedy = None if problem.startswith(NOT_NOW) else f"fix it on node {node.name}"
            yield Cause(what=f"node {node.name} {node.problem_with(job.name)}", remedy=remedy)
    if not found.nodes:
        yield Cause(what="no node is alive", remedy="start one with `cdc node`")
    elif not any(not node.draining and node.locality.matches(job.locality) for node in found.nodes):
        yield Cause(
            what=f"no live node matches its locality ({job.locality or 'any'})",
            remedy="start a node there with `cdc node --locality`, or change execution_locality with `cdc alter`",
        )


def _of_any(found: Report) -> Iterator[Cause]:
    """Yield what may be true of every changefeed."""
    name, shown = found.known.name, found.to_json()
    if found.retrying is not None:
        yield Cause(what=found.retrying.text)
    elif waits := _waits(found):
        yield Cause(what=f"waits for {waits}")
    if shown["notice"]:
        yield Cause(what=shown["notice"])
    if shown["releases_failed"] > 1 and found.state not in DONE:
        steps = f"{shown['releases_failed']:,} steps"
        yield Cause(what=f"the source has not released history after the last {steps}, and may run out of disk space")
    if found.dead_letters:
        what = f"{found.dead_letters:,} rows are dead letters"
        replay = f"pause it, then `cdc replay-dead-letters {name}`"
        if found.job is None:
            replay = RULES["replay"].for_runs.format(name=name)
        yield Cause(what=what, remedy=f"fix the cause, {replay}")


def _waits(found: Report) -> str:
    """Return what a live run waits for, unless that is new changes."""
    shown = found.to_json()
    on = None if shown["waiting_on"] == "changes" else shown["waiting_on"]
    return ": ".join(filter(None, (on, shown["waiting_for"])))
