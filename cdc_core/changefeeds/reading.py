"""What people see of jobs and nodes. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_core.changefeeds.finding import Finder
from cdc_core.config.listed_tables import topics_of
from cdc_core.store.job_reports import JobReport, job_report, job_reports
from cdc_core.store.job_values import JobRecord, NodeRecord, moment
from cdc_core.store.node_reports import node_values
from cdc_core.store.progress import ChangefeedRecord
from cdc_core.store.reports import Report, report
from cdc_core.store.verbs import RULES, Verb

__all__ = ["Reading", "recent"]

_RECENT = timedelta(hours=12)


class Reading(Finder):
    """The lists of jobs and nodes."""

    def job_reports(self) -> list[JobReport]:
        """Return a report of every job, by name, of finished ones too."""
        return job_reports(self.store)

    def jobs_for(self, verb: Verb) -> list[str]:
        """Return the names of the jobs for which *verb* would do something."""
        return [job.name for job in self.store.jobs.all() if job.state in RULES[verb].does]

    def job_report(self, job: JobRecord) -> JobReport:
        """Return a report of the job. Raises: UnknownError when it was forgotten meanwhile."""
        return job_report(self.store, job, self.known(job.name), now=datetime.now(UTC))

    def report(self, name: str) -> Report:
        """Return what is known of a changefeed. Raises: UnknownError."""
        return self.report_of(self.known(name))

    def report_of(self, known: ChangefeedRecord) -> Report:
        """Return what is known of a changefeed that was found before; it may have been forgotten since."""
        return report(self.store, known, now=datetime.now(UTC))

    def topics(self, name: str) -> list[str]:
        """Return the topics of the changefeed by its definition, and those that a query has given to rows."""
        return list(self.store.topics.of(name) or topics_of(self.known(name).definition) or ())

    def nodes(self) -> list[dict[str, Any]]:
        """Return every node as JSON values, those that died within a day too."""
        now, found = self.store.nodes.all()
        return self._shown(found, now)

    def node(self, record: NodeRecord) -> dict[str, Any]:
        """Return the node, which may have ended since, as JSON values."""
        now, _ = self.store.nodes.all()
        return self._shown([record], now)[0]

    def _shown(self, nodes: list[NodeRecord], now: float) -> list[dict[str, Any]]:
        jobs = self.store.jobs.all()
        return [node_values(each, jobs, now=now) for each in nodes]

    def may_be_adopted(self, job: JobRecord) -> bool:
        """Return whether a living node that matches the job would take it."""
        living = self.store.nodes.living()
        return any(not node.draining and node.locality.matches(job.locality) for node in living)


def recent(found: Iterable[JobReport]) -> list[JobReport]:
    """Return all jobs but those that finished more than 12 hours ago."""
    return [each for each in found if (at := moment(each.job.finished)) is None or each.now - at <= _RECENT]
