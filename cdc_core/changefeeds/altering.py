"""Giving a changefeed another definition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cdc_core.changefeeds.creating import check_job, locality_of
from cdc_core.changefeeds.finding import Finder, stopped
from cdc_core.config.alteration import Alteration
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changefeed_from, changefeed_of, require_references, written_of
from cdc_core.config.identity import changed_sections, require_same_range, require_same_source
from cdc_core.config.listed_tables import own_name
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import as_stored
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.store.database import overtaken
from cdc_core.store.job_rows import asked_job, change_job, known_job, of_job, run_again
from cdc_core.store.job_values import RESTING, JobRecord, Pending
from cdc_core.store.jobs import define_job
from cdc_core.store.progress import ProgressStore
from cdc_core.store.rescans import rescan_returning
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.values import dump, timestamp_of
from cdc_core.store.verbs import RefusedError, require_run

_FIXED = ("cursor", "end_time", "initial_scan")
"""Options by which earlier steps have left out rows."""
_AGAIN = "review it, then repeat the request"
_PARTS = ("source", "query", "functions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """What an alteration did. `tables` is the new list, if it has changed.

    `is_new` says whether the definition has changed.
    """

    job: JobRecord
    change: Alteration
    definition: Mapping[str, Any]
    tables: Sequence[str]
    is_new: bool = True


class Altering(Finder):
    """The verb alter, for jobs, and for the tables of changefeeds that `cdc run` has begun."""

    def alter(
        self, name: str, change: Alteration, *, by: str, scans: bool | Mapping[str, bool] | None = None
    ) -> Altered:
        """Change job *name*; `redefine` says what happens to a running job.

        *scans* says, for added tables, whether their rows are emitted. *by* names the requester in the history. Raises:
        ConfigError, without changing the job; as `redefine`.
        """
        self.known(name)
        job = self.require_job(name, verb="alter")
        last = self.last_definition(job)
        before = changefeed_from(last, name, origin=self.origin, environ=self._environ)
        after, change, chosen = self._changed(before, before.tables, change, scans)
        if chosen and self.store.progress.load(name) is None:
            if _runs(job):
                raise _fixed(job, f"job '{name}': the scan of added tables", begun=False)
            raise ConfigError(
                f"job '{name}' has not started yet, so option initial_scan applies to all of its tables; set that"
                " option instead"
            )
        altered = self.redefine(name, after, before=last, why=f"altered ({by}): {change}", scans=chosen)
        tables = () if after.tables == before.tables else after.tables
        definition = self.last_definition(altered)
        return Altered(job=altered, change=change, definition=definition, tables=tables, is_new=definition != last)

    def redefine(
        self,
        name: str,
        after: ResolvedChangefeed,
        *,
        before: Mapping[str, Any],
        why: str,
        scans: Mapping[str, bool] | None = None,
        connect: bool = True,
    ) -> JobRecord:
        """Replace the definition of job *name*, which must be *before*, with *after*.

        A running job changes after the running step and continues from its position; if the definitions are equal, it
        is not interrupted. A job that an error has stopped runs again in any case; a paused job stays paused. The
        source and the sink are checked only with *connect*. Raises: ConfigError, also for parts that are fixed once the
        job has begun; RefusedError, also for these parts while a node is starting the job, and if *before* is no longer
        the last definition; errors of the source and the sink.
        """
        job = self.require_job(name, verb="alter")
        require_references(after.stored, name)
        definition = after.definition()
        if definition == before and not job.rests_for_error:
            return job
        begun = self.store.progress.load(name) is not None
        runs = _runs(job)  # by the time that its node hears of the change, it may have begun
        if begun or runs:
            self._require_same_parts(job, before, after, begun=begun)
        if connect:
            check_job(as_stored(after, self.store))
        wanted = Pending(definition=definition, locality=locality_of(after), initial_scans=scans or {}, why=why)
        return configure(self.store, name, wanted, before=before, begun=begun or runs, offer_to=self._node)

    def alter_run(
        self,
        changefeed: Changefeed,
        change: Alteration,
        *,
        state_dir: Path,
        by: str,
        scans: bool | Mapping[str, bool] | None = None,
    ) -> Altered:
        """Change the tables of *changefeed*, which `cdc run` has begun, in the store. No run may be alive.

        The next run with the stored definition uses them. Raises: ConfigError, without changing anything; errors of the
        source and the sink.
        """
        name = changefeed.name
        self.known(name)
        with stopped(self.store, name, state_dir):
            known = self.known(name)
            if self.store.progress.load(name) is None:
                raise ConfigError(f"changefeed '{name}' has not started yet; change 'tables' in its file")
            after, change, chosen = self._changed(changefeed, known.definition["tables"], change, scans)
            _require_table_changes(after)
            check_job(as_stored(after, self.store), job=False)
            wanted = Pending(
                definition=after.definition(),
                locality=Locality(),
                initial_scans=chosen,
                why=f"altered ({by}): {change}",
            )
            job = configure(self.store, name, wanted, before=known.definition, epoch=known.epoch)
        return Altered(job=job, change=change, definition=wanted.definition, tables=after.tables)

    def last_definition(self, job: JobRecord) -> Mapping[str, Any]:
        """Return the job's latest definition, even if it has not taken effect yet. Raises: UnknownError."""
        return self.known(job.name).definition if job.pending is None else job.pending.definition

    def _changed(
        self,
        before: Changefeed,
        tables: Sequence[str],
        change: Alteration,
        scans: bool | Mapping[str, bool] | None,
    ) -> tuple[ResolvedChangefeed, Alteration, dict[str, bool]]:
        """Return *before*, with *tables*, as it is after *change*; the change and what is scanned, by full names."""
        own = {table: own_name(table, before.sources[0]) for table in (*change.add, *change.drop)}
        change = replace(change, add=[own[table] for table in change.add], drop=[own[table] for table in change.drop])
        written = change.applied(written_of(before), tables, self.schema_of(before.sources[0]))
        after = self.resolved(changefeed_of(before.name, written, origin=self.origin, environ=self._environ))
        if isinstance(scans, bool):
            return after, change, dict.fromkeys(change.add, scans)
        return after, change, {own[table]: wanted for table, wanted in (scans or {}).items()}

    def _require_same_parts(
        self, job: JobRecord, before: Mapping[str, Any], after: ResolvedChangefeed, *, begun: bool
    ) -> None:
        """Return when the job, which has *begun* or is beginning as *before*, can be *after*. Raises: ConfigError."""
        name, sink = job.name, self.plugins.sink_for(before["sink"]).name
        if after.sink.name != sink:
            what = f"job '{name}' delivers to sink '{sink}', not '{after.sink.name}', and the type of a sink"
            raise _fixed(job, what, begun=begun)
        was, now = before["written"], after.stored["written"]
        mine, other = ({key.lower(): text for key, text in each.get("options", {}).items()} for each in (was, now))
        changed = [f"'{part}'" for part in _PARTS if (was.get(part) or None) != (now.get(part) or None)]
        changed += ["'table'"] if changed_sections(before, after.definition()) else []
        changed += [f"option '{option}'" for option in _FIXED if _text(mine.get(option)) != _text(other.get(option))]
        if changed:
            what = f"job '{name}': {', '.join(changed)}"
            raise _fixed(job, what, begun=begun, why=", because it has delivered rows")
        if set(after.tables) != set(before["tables"]):
            if not begun and not after.rangefeed.registration.changes_tables:
                raise _fixed(job, f"job '{name}': 'tables'", begun=False)
            _require_table_changes(after)


def configure(
    store: ProgressStore,
    name: str,
    wanted: Pending,
    *,
    before: Mapping[str, Any],
    begun: bool = True,
    epoch: int | None = None,
    offer_to: str | None = None,
) -> JobRecord:
    """Give the job another definition: at once, or when its node has finished the running step; then it continues.

    A job that someone has paused stays so; one that rests for an error runs again, as Kafka Connect has it, at the node
    *offer_to* first. *before* is the definition that was changed, the pending one if there was one. What was chosen
    earlier about scans of the tables that remain holds. Raises: RefusedError, also when *before* is not the last one,
    and when the job has begun or runs since it had not *begun*; ConfigError when one that has begun cannot have
    *wanted*. Source and sink are not asked.

    What `cdc run` runs has *epoch*, and must not run: it stays as it is. Raises: FencedError when a run has begun.
    """
    with store.transaction() as connection:
        job = asked_job(connection, name, "alter")
        known = sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)
        row = connection.execute(known.with_for_update()).one()
        last = row.definition if job.pending is None else dump(job.pending.definition)
        if epoch is not None:
            require_run(job)
            if row.epoch != epoch:
                raise overtaken(name, epoch)
        runs = _runs(job)
        if last != dump(before) or ((row.token is not None or runs) and not begun):
            what = "changefeed" if job.is_run else "job"
            raise RefusedError(f"{what} '{name}' was changed in the meantime", state=job.state, remedy=_AGAIN)
        earlier = json.loads(row.initial_scans or "{}") if job.pending is None else job.pending.initial_scans
        remaining = {table: scan for table, scan in earlier.items() if table in wanted.definition["tables"]}
        scans = {**remaining, **wanted.initial_scans}
        wanted = replace(wanted, initial_scans=scans)
        if not runs:
            if job.is_run or job.state not in RESTING:  # fence a run that begins, or a node that is dead or frozen
                connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))
            connection.execute(of_job(name).values(pending=None, node_id=None))
            define_job(connection, name, wanted)
            if job.rests_for_error and not job.is_run:
                run_again(connection, job, wanted.why, offer_to=offer_to)
            return known_job(connection, name, of_runs=True)
        if row.token is not None:
            stored = json.loads(row.definition)
            if changed := changed_sections(stored, wanted.definition):
                what = f"job '{name}' has not dropped table {changed[0]} yet; its section cannot change until then"
                raise RefusedError(what, state=job.state, remedy="repeat this after the running step")
            require_same_source(name, stored, wanted.definition, changes_tables=True)
            require_same_range(name, stored, wanted.definition, latest=timestamp_of(row.latest))
            rescan_returning(connection, row, before["tables"], wanted.definition, scans)
        if job.state == "running":
            change_job(connection, job, "pause-requested", reason=wanted.why, paused_for="restart")
        connection.execute(of_job(name).values(pending=dump(wanted.to_json())))
        return known_job(connection, name)


def _runs(job: JobRecord) -> bool:
    """Return whether a node has the job, and carries out later what is asked now."""
    return job.node is not None and job.state not in RESTING


def _fixed(job: JobRecord, what: str, *, begun: bool, why: str = "") -> ConfigError:
    """Return the refusal to alter *what* of the job, which has *begun* or is beginning."""
    if begun:
        return ConfigError(f"{what} cannot be altered{why}; create another job")
    remedy = f"pause it with `cdc pause {job.name}`, and alter it if it has not started by then"
    if job.state == "pause-requested":
        remedy = "wait until it is paused"
    return RefusedError(f"{what} cannot be altered while a node is starting the job", state=job.state, remedy=remedy)


def _require_table_changes(feed: ResolvedChangefeed) -> None:
    if not feed.rangefeed.registration.changes_tables:
        raise ConfigError(f"{feed.rangefeed.owner} cannot change the tables of a changefeed that has started")


def _text(value: Any) -> str | None:
    return None if value is None else str(value).lower()
