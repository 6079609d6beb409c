"""What the progress store knows of each changefeed, for whoever looks from outside of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cdc_core.store.job_values import REVERTED, RUNNABLE, JobEvent, JobRecord, NodeRecord, moment
from cdc_core.store.liveness import ENDINGS, is_alive, lag_s, retried_by
from cdc_core.store.progress import ChangefeedRecord, Pause, Progress, ProgressStore, RescanRecord, SavedStatus
from cdc_core.telemetry import metrics
from cdc_core.telemetry.status import Retrying, shown_moment
from cdc_core.telemetry.tally import RETAINED, Tally
from cdc_core.timestamp import Timestamp

_TOTALS = (metrics.STEPS, metrics.ROWS, metrics.ROWS_REPEATED, metrics.MESSAGES, metrics.BYTES, metrics.FILES)
_SELECTED = ("query", "selections")
_OF_A_RUN = ("notice", "rows_per_s", "waiting_on", "waiting_for", "next_attempt_at", "slices")
"""What a status says of the moment; it means nothing when the run has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One changefeed as of `now`. Holds no secret. `dead_letters` counts those that were not replayed.

    Unless nodes run it, `job` is None, and `history` empty. `nodes` are those that are alive at `clock`, the time of
    the database. A brief one has what `job_json` needs: no `progress`, `rescans` and `history`, and no count of
    `dead_letters`.
    """

    known: ChangefeedRecord
    progress: Progress | None
    status: SavedStatus | None
    dead_letters: int
    now: datetime
    rescans: Sequence[RescanRecord] = ()
    job: JobRecord | None = None
    history: Sequence[JobEvent] = ()
    nodes: Sequence[NodeRecord] = ()
    clock: float = 0.0

    @property
    def state(self) -> str:
        """What the changefeed does, in one of the words that docs/status.md explains; of a job, its state.

        A job is `retrying` while it is running and nothing works.
        """
        if self.job is not None:
            return "retrying" if self.job.state == "running" and self.retrying is not None else self.job.state
        if self.known.paused is not None:
            return "paused"
        if self.status is None:
            return "new" if self.progress is None else "unknown"
        ending = ENDINGS.get(self.status.values.get("phase", ""))
        if ending is not None or not is_alive(self.status, now=self.now):
            return ending or "silent"
        if self.known.pause_requested is not None:
            return "pause-requested"
        return "running" if self.retrying is None else "retrying"

    @property
    def is_alive(self) -> bool:
        """Whether the run that saved the status is alive: of a job, that is one of the newest attempt."""
        is_newest = self.job is None or (self.status is not None and self.status.epoch == self.job.epoch)
        return is_newest and is_alive(self.status, now=self.now)

    @property
    def retrying(self) -> Retrying | None:
        """What a live run, or a live node, retries: also while an attempt begins, whose status is not saved yet."""
        works = is_alive(self.status, now=self.now) if self.job is None else self.job.node is not None
        return retried_by(self.status, now=self.now) if works else None

    @property
    def behind_s(self) -> float | None:
        """How far it is behind `now`: see `lag_s`."""
        return lag_s(self.known, self.state, now=self.now)

    @property
    def protected_age_s(self) -> float | None:
        """For how long a job has held back history at its source; None when it is not a job, or holds none."""
        since = None if self.job is None else protected_since(self.job, self.known)
        return None if since is None else max(0.0, self.now.timestamp() - since)

    @property
    def holds_history(self) -> bool:
        """Whether the source may retain something for the changefeed."""
        return self.job is None or self.job.state not in REVERTED

    @property
    def gauges(self) -> Mapping[str, float]:
        """What the source said of its history last; nothing when it retains none anymore."""
        return self.known.gauges if self.holds_history else {}

    @property
    def retained_bytes(self) -> float | None:
        """How much log the source keeps, as measured last; None when that is not known, or nothing is."""
        return self.gauges.get(RETAINED)

    @property
    def gauges_age_s(self) -> float | None:
        """How long ago the source said so, None when it never did."""
        measured = self.known.measured_at
        return None if measured is None else max(0.0, (self.now - measured).total_seconds())

    @property
    def stale_gauges_age_s(self) -> float | None:
        """Their age if that is to be shown: they could not be measured now."""
        return self.known.stale_age_s(self.now) if self.holds_history else None

    @property
    def tally(self) -> Tally:
        """What the changefeed has counted, over all its runs."""
        return Tally() if self.progress is None else self.progress.tally

    @property
    def running_status(self) -> str:
        """What is done for the job now, or what it waits for; empty while it needs no node."""
        job = self.job
        if job is None or job.state not in {"waiting", *RUNNABLE}:
            return ""
        if job.node is None:
            return self._waiting(job)
        if job.state == "reverting":
            return f"node {job.node} drops what it holds at its source"
        if job.state != "running":
            return f"waiting for node {job.node} to stop it"
        if self.retrying is not None:
            return self.retrying.text
        if not self.is_alive:
            said = self.status
            if said is None or said.epoch != job.epoch or said.values.get("phase") in ENDINGS:
                return f"starting on node {job.node}"
            return f"silent since {shown_moment(said.written_at)} on node {job.node}"
        mark = self.known.high_water
        return f"running: resolved={mark}" if mark else "running: no resolved timestamp yet"

    @property
    def shown_status(self) -> str:
        """`running_status` for people, who see the state beside it, and read the high-water mark as a time."""
        mark, text = self.known.high_water, self.running_status.removeprefix("running: ")
        return text.replace(f"resolved={mark}", f"resolved {shown_moment(mark.to_datetime())}") if mark else text

    def _waiting(self, job: JobRecord) -> str:
        if (node := job.reserved_for(self.nodes, now=self.clock)) is not None:
            return f"waiting for node {node.name} to adopt it"
        matching = f" that matches {job.locality}" if job.locality.tiers else ""
        problems = [f"{node.name}: {node.problems[job.name]}" for node in self.nodes if job.name in node.problems]
        problems += [
            f"{node.name}: it runs no jobs of '{job.owner}'" for node in self.nodes if not node.takes(job.owner)
        ]
        return f"waiting for a node{matching}" + (f"; {'; '.join(problems)}" if problems else "")

    def job_json(self) -> dict[str, Any]:
        """Return the report of a job, which it must be one of, as JSON values; docs/job-states.md explains each."""
        job, mark, retained = self.job, self.known.high_water, self.retained_bytes
        assert job is not None
        return {
            "name": job.name,
            "state": self.state,
            "running_status": self.running_status or None,
            "retrying": self.retrying and self.retrying.to_json(),
            "reason": job.reason,
            "node": job.node,
            "owner": job.owner,
            "execution_locality": str(job.locality) or None,
            "created": _text(moment(job.created)),
            "started": _text(moment(job.started)),
            "finished": _text(moment(job.finished)),
            "high_water": str(mark) if mark else None,
            "behind_s": self.behind_s,
            "retained_bytes": retained,
            "retained_at": None if retained is None else _text(self.known.measured_at),
            "epoch": job.epoch,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; docs/status.md explains each."""
        known, mark = self.known, self.known.high_water
        status: Mapping[str, Any] = {} if self.status is None else self.status.values
        alive, tally = self.is_alive, self.tally
        return {
            "name": known.name,
            "state": self.state,
            **{name: known.definition.get(name) for name in ("source", "tables", "sink", "format", *_SELECTED)},
            "high_water": str(mark) if mark else None,
            "high_water_at": mark.to_datetime().isoformat() if mark else None,
            "behind_s": self.behind_s,
            "protected_age_s": self.protected_age_s,
            "saved_at": _text(known.saved_at),
            "totals": {metric.key(): int(tally.value(metric)) for metric in _TOTALS},
            "dead_letters": self.dead_letters,
            "shards": [self._shard(source, mark) for source, mark in self._shards],
            "gauges": dict(self.gauges),
            "gauges_at": _text(known.measured_at),
            "releases_failed": int(tally.value(metrics.UNRELEASED_STEPS)),
            "paused": _pause(known.paused),
            "pause_requested": _pause(known.pause_requested),
            "phase": status.get("phase"),
            "error": status.get("error"),
            "scan": status.get("scan"),
            "rescans": [self._rescan(found) for found in self.rescans],
            **{name: status.get(name) if alive else None for name in _OF_A_RUN},
            "retrying": self.retrying and self.retrying.to_json(),
            "host": status.get("host"),
            "pid": status.get("pid"),
            "heard_at": self.status and _text(self.status.written_at),
            "feed_id": known.feed_id,
            "epoch": known.epoch,
            "job": None
            if self.job is None
            else {**self.job_json(), "history": [_event(each) for each in self.history]},
        }

    @property
    def _shards(self) -> Sequence[tuple[str, Timestamp]]:
        """The sources and what is resolved of each; empty when there is only one."""
        if len(self.known.sources) == 1:
            return []
        return list(zip(self.known.sources, self.known.resolved, strict=True))

    def _shard(self, source: str, mark: Timestamp) -> dict[str, Any]:
        return {
            "source": source,
            "resolved": str(mark) if mark else None,
            "behind_s": max(0.0, self.now.timestamp() - mark.wall / 1e9) if mark else None,
        }

    def _rescan(self, found: RescanRecord) -> dict[str, Any]:
        began = found.began
        state = "waiting" if began is None else "complete" if self.known.high_water > began else "running"
        return {
            "table": found.table,
            "where": found.where,
            "new_slot": found.new_slot,
            "state": state,
            "asked_at": _text(found.asked_at),
            "began": None if began is None else str(began),
        }


def report(store: ProgressStore, known: ChangefeedRecord, *, now: datetime) -> Report:
    """Return what *store* knows of a changefeed. Changes nothing; runs do not notice."""
    job = store.jobs.find(known.name)
    clock, nodes = (0.0, []) if job is None else _living(store)
    return Report(
        known=known,
        progress=store.progress.load(known.name),
        status=store.statuses.load(known.name),
        dead_letters=store.dead_letters.waiting(known.name).get(known.name, 0),
        rescans=store.rescans.of(known.name),
        job=job,
        history=() if job is None else store.jobs.events(known.name),
        nodes=nodes,
        clock=clock,
        now=now,
    )


def job_report(store: ProgressStore, job: JobRecord, known: ChangefeedRecord) -> Report:
    """Return a brief report of *job*."""
    clock, nodes = _living(store)
    status, now = store.statuses.load(job.name), datetime.now(UTC)
    return Report(known=known, progress=None, status=status, dead_letters=0, job=job, nodes=nodes, clock=clock, now=now)


def reports(store: ProgressStore, *, brief: bool = False) -> list[Report]:
    """Return a report of every changefeed, by name, without the history of jobs and what is rescanned.

    Six transactions, four for *brief* ones, however many changefeeds there are; changes nothing.
    """
    clock, nodes = _living(store)
    statuses, by_name = store.statuses.load_all(), {job.name: job for job in store.jobs.all()}
    waiting, progress = ({}, {}) if brief else (store.dead_letters.waiting(), store.progress.load_all())
    now = datetime.now(UTC)
    return [
        Report(
            known=known,
            progress=progress.get(known.name),
            status=statuses.get(known.name),
            dead_letters=waiting.get(known.name, 0),
            job=by_name.get(known.name),
            nodes=nodes,
            clock=clock,
            now=now,
        )
        for known in store.changefeeds.all()
    ]


def whole_reports(store: ProgressStore) -> list[Report]:
    """Return the reports with the history of jobs and what is rescanned, in two more transactions."""
    rescans, histories = store.rescans.all(), store.jobs.all_events()
    return [
        replace(
            found,
            rescans=rescans.get(found.known.name, ()),
            history=() if found.job is None else histories.get(found.known.name, ()),
        )
        for found in reports(store)
    ]


def _living(store: ProgressStore) -> tuple[float, list[NodeRecord]]:
    """Return the database's clock, and the nodes that are alive then."""
    clock, nodes = store.nodes.all()
    return clock, [node for node in nodes if node.expires > clock]


def protected_since(job: JobRecord, known: ChangefeedRecord) -> float | None:
    """Return since when the job holds back history at its source, in seconds since 1970: its high-water mark, or its
    creation before there is one. None when nothing is held back anymore.
    """
    if job.state in REVERTED:
        return None
    return known.high_water.wall / 1e9 if known.high_water else job.created


def _pause(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else {"reason": pause.reason, "since": _text(pause.since)}


def _event(event: JobEvent) -> dict[str, Any]:
    return {"at": _text(moment(event.at)), "state": event.state, "reason": event.reason, "node": event.node}


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
