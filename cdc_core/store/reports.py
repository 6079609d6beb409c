"""What the progress store knows of each changefeed, for whoever looks from outside of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdc_core.store.job_reports import JobReport, job_report
from cdc_core.store.job_values import REVERTED, JobEvent, JobRecord, moment
from cdc_core.store.liveness import ENDINGS, is_alive, lag_s, retried_by
from cdc_core.store.progress import ChangefeedRecord, Pause, Progress, ProgressStore, RescanRecord, SavedStatus
from cdc_core.telemetry import metrics
from cdc_core.telemetry.status import Retrying
from cdc_core.telemetry.tally import Tally
from cdc_core.timestamp import Timestamp

_TOTALS = (metrics.STEPS, metrics.ROWS, metrics.ROWS_REPEATED, metrics.MESSAGES, metrics.BYTES, metrics.FILES)
_SELECTED = ("query", "selections")
_OF_A_RUN = ("notice", "rows_per_s", "waiting_on", "waiting_for", "next_attempt_at", "slices")
"""What a status says of the moment; it means nothing when the run has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One changefeed as of `now`. Holds no secret. `dead_letters` counts those that were not replayed.

    `job` is None, and `history` empty, unless it is a job.
    """

    known: ChangefeedRecord
    progress: Progress | None
    status: SavedStatus | None
    dead_letters: int
    now: datetime
    rescans: Sequence[RescanRecord] = ()
    job: JobReport | None = None
    history: Sequence[JobEvent] = ()

    @property
    def state(self) -> str:
        """What the changefeed does, in one of the words that docs/operations.md explains; of a job, its state."""
        if self.job is not None:
            return self.job.state
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
        return is_alive(self.status, now=self.now) if self.job is None else self.job.is_alive

    @property
    def retrying(self) -> Retrying | None:
        """What a living run retries."""
        if self.job is not None:
            return self.job.retrying
        return retried_by(self.status, now=self.now) if is_alive(self.status, now=self.now) else None

    @property
    def behind_s(self) -> float | None:
        """How far it is behind `now`: see `lag_s`."""
        return lag_s(self.known, self.state, now=self.now)

    @property
    def protected_age_s(self) -> float | None:
        """For how long a job has held back history at its source; None when it is not a job, or holds none."""
        since = None if self.job is None else protected_since(self.job.job, self.known)
        return None if since is None else max(0.0, self.now.timestamp() - since)

    @property
    def holds_history(self) -> bool:
        """Whether the source may retain something for the changefeed."""
        return self.job is None or self.job.job.state not in REVERTED

    @property
    def gauges(self) -> Mapping[str, float]:
        """What the source said of its history last; nothing when it retains none any more."""
        return self.known.gauges if self.holds_history else {}

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

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; docs/operations.md explains each."""
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
            "job": None if self.job is None else {**self.job.to_json(), "history": list(map(_event, self.history))},
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
    return Report(
        known=known,
        progress=store.progress.load(known.name),
        status=store.statuses.load(known.name),
        dead_letters=store.dead_letters.waiting(known.name).get(known.name, 0),
        rescans=store.rescans.of(known.name),
        job=None if job is None else job_report(store, job, known, now=now),
        history=() if job is None else store.jobs.events(known.name),
        now=now,
    )


def reports(store: ProgressStore) -> list[Report]:
    """Return a report of every changefeed, by name, without the history of jobs and what is rescanned.

    Six transactions, however many changefeeds there are; changes nothing.
    """
    statuses, waiting, jobs = (
        store.statuses.load_all(),
        store.dead_letters.waiting(),
        {job.name: job for job in store.jobs.all()},
    )
    progress, now = store.progress.load_all(), datetime.now(UTC)
    found = []
    for known in store.changefeeds.all():
        name, job = known.name, jobs.get(known.name)
        status = statuses.get(name)
        found.append(
            Report(
                known=known,
                progress=progress.get(name),
                status=status,
                dead_letters=waiting.get(name, 0),
                job=None if job is None else JobReport(job=job, known=known, status=status, now=now),
                now=now,
            )
        )
    return found


def protected_since(job: JobRecord, known: ChangefeedRecord) -> float | None:
    """Return since when the job holds back history at its source, in seconds since 1970: its high-water mark, or its
    creation before there is one. None when nothing is held back any more.
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
