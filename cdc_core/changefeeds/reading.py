"""What people see of changefeeds, jobs and nodes. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_core.changefeeds.finding import Finder
from cdc_core.config.listed_tables import topics_of
from cdc_core.store.event_values import Event
from cdc_core.store.events import EventTail
from cdc_core.store.job_values import JobEvent, JobRecord, NodeRecord, moment
from cdc_core.store.moments import Moment
from cdc_core.store.node_reports import NodeReport, node_reports
from cdc_core.store.progress import ChangefeedRecord, Progress
from cdc_core.store.reports import Report, job_report, report, reports, whole_reports
from cdc_core.store.verbs import RULES, Verb

_RECENT = timedelta(hours=12)


class Reading(Finder):
    """Lists and reports. Their subject may have been deleted since, unless this raises UnknownError."""

    def records(self) -> list[ChangefeedRecord]:
        """Return every changefeed, by name."""
        return self.store.changefeeds.all()

    def reports(self) -> list[Report]:
        """Return a report of every changefeed, by name, without histories: see `cdc_core.store.reports.reports`."""
        return reports(self.store)

    def whole_reports(self) -> list[Report]:
        """Return a full report of every changefeed, by name."""
        return whole_reports(self.store)

    def jobs(self) -> list[JobRecord]:
        """Return every job by name, including finished ones."""
        return self.store.jobs.all()

    def runs(self) -> list[str]:
        """Return the sorted names of the changefeeds that `cdc run` runs."""
        return self.store.jobs.runs()

    def job_reports(self) -> list[Report]:
        """Return a brief report of every job by name, including finished ones; see `job_json` of each."""
        return [each for each in reports(self.store, brief=True) if each.job is not None]

    def job_report(self, job: JobRecord) -> Report:
        """Return a brief report of the job. Raises: UnknownError if it was deleted in the meantime."""
        return job_report(self.store, job, self.known(job.name))

    def jobs_for(self, verb: Verb) -> list[str]:
        """Return the names of the jobs for which *verb* would do something."""
        return [job.name for job in self.jobs() if job.state in RULES[verb].does]

    def report(self, name: str) -> Report:
        """Return a full report of a changefeed. Raises: UnknownError."""
        return self.report_of(self.known(name))

    def report_of(self, known: ChangefeedRecord) -> Report:
        """Return a full report of a changefeed that was found before; it may have been deleted since."""
        return report(self.store, known, now=datetime.now(UTC))

    def progress(self, name: str) -> Progress | None:
        """Return the last saved progress of the changefeed; None if it has not begun."""
        return self.store.progress.load(name)

    def history(self, name: str) -> Sequence[JobEvent]:
        """Return the states that the job has been in, oldest first."""
        return self.store.jobs.events(name)

    def moments(self, name: str) -> list[Moment]:
        """Return the changefeed's counters for each minute of the last day."""
        return self.store.moments.of(name)

    def events(
        self,
        name: str | None = None,
        *,
        since: datetime | None = None,
        after: int | None = None,
        kinds: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Event]:
        """Return the events of a changefeed, or of all changefeeds and nodes, oldest first: see `Events.read`."""
        return self.store.events.read(name, since=since, after=after, kinds=kinds, limit=limit)

    def follow_events(
        self, name: str | None, *, since: datetime | None, kinds: Sequence[str], limit: int | None
    ) -> tuple[list[Event], EventTail]:
        """Return the events until now, and a function that returns later events."""
        log = self.store.events
        last = log.last_number()
        found = log.read(name, since=since, until=last, kinds=kinds, limit=limit)
        return found, EventTail(log, name, after=last, kinds=kinds)

    def saved(self, known: ChangefeedRecord) -> dict[str, Any]:
        """Return everything that the store has about a changefeed as JSON values, for diagnostics."""
        found, store, name = self.report_of(known), self.store, known.name
        progress, status = found.progress, found.status
        return {
            "store": store.shown,
            "definition": known.definition,
            "report": found.to_json(),
            "epoch": known.epoch,
            "progress": None
            if progress is None
            else {
                "token": progress.token,
                "frontier": progress.frontier.to_json(),
                "latest": str(progress.latest),
                "emitted": str(progress.emitted),
                "counters": progress.counters,
            },
            "status": None if status is None else {**status.values, "written_at": status.written_at.isoformat()},
            "plan": store.planned_steps.load_plan(name),
            "topics": list(store.topics.of(name)),
            "rescans": [asdict(rescan) for rescan in found.rescans],
        }

    def topics(self, name: str) -> list[str]:
        """Return the topics of the changefeed by its definition, and those that a query has given to rows."""
        known = self.known(name)
        return list(self.store.topics.of(name) or topics_of(known.definition, self.schema_of(known.sources[0])) or ())

    def living_nodes(self) -> list[NodeRecord]:
        """Return the nodes that are alive, including those that are draining."""
        return self.store.nodes.living()

    def nodes(self) -> list[NodeReport]:
        """Return a report of every node, including those that died within a day."""
        return node_reports(self.store)

    def node(self, record: NodeRecord) -> NodeReport:
        """Return a report of the node, which may have ended since."""
        return node_reports(self.store, only=record)[0]

    def may_be_adopted(self, job: JobRecord) -> bool:
        """Return whether a live node that matches the job would adopt it."""
        return any(not node.draining and node.locality.matches(job.locality) for node in self.living_nodes())


def recent(found: Iterable[Report]) -> list[Report]:
    """Return all jobs except those that finished more than 12 hours ago."""
    ended = ((each, moment(None if each.job is None else each.job.finished)) for each in found)
    return [each for each, at in ended if at is None or each.now - at <= _RECENT]
