"""Changefeeds by name: their definitions, identities and attempts."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cdc_core.config.identity import require_same_range, require_same_source, same_destination
from cdc_core.errors import ConfigError
from cdc_core.store.database import Aggregate, overtaken
from cdc_core.store.events import add_event
from cdc_core.store.job_rows import found_job, pause_run
from cdc_core.store.job_tables import JOB_EVENTS, JOBS
from cdc_core.store.job_values import moment
from cdc_core.store.marks import turn_away
from cdc_core.store.rescans import rescan_returning
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.values import (
    RECORD_COLUMNS,
    ChangefeedRecord,
    Pause,
    changefeed_record,
    dump,
    now_text,
    timestamp_of,
)
from cdc_core.store.verbs import require_run
from cdc_core.timestamp import Timestamp

_TOLD = ("envelope", "initial_scan", "resolved", "cursor", "end_time", "on_error")
"""Options of which the event of a new changefeed tells the value."""
_PAUSED_AT = sa.select(sa.func.max(JOB_EVENTS.c.at)).where(
    JOB_EVENTS.c.name == JOBS.c.name, JOB_EVENTS.c.state == JOBS.c.state
)
_IS_PAUSED = JOBS.c.state.in_(("pause-requested", "paused")) & JOBS.c.paused_for.is_distinct_from("restart")
"""Of what `cdc run` runs: it is paused, or is to be. One that was resumed before it paused is not, or no longer."""
_SELECT = sa.select(
    *(CHANGEFEEDS.c[name] for name in RECORD_COLUMNS),
    JOBS.c.state.label("pause_state"),
    JOBS.c.reason.label("why"),
    _PAUSED_AT.scalar_subquery().label("paused_at"),
).join(
    JOBS,
    (JOBS.c.name == CHANGEFEEDS.c.name) & JOBS.c.is_run & _IS_PAUSED,
    isouter=True,
)


class ChangefeedRecords(Aggregate):
    """Every changefeed that was run with this store, until it is forgotten."""

    def register(
        self, name: str, definition: Mapping[str, Any], *, changes_tables: bool = False, epoch: int | None = None
    ) -> ChangefeedRecord:
        """Add the changefeed, or find it again, and return it. *definition* is `ResolvedChangefeed.definition`.

        *epoch* is the one under which a node has claimed it as a job; without one it must be of `cdc run`. With another
        sink than before, the first record there says that earlier rows are missing from it. Raises: ConfigError when
        the name belongs to a changefeed that began with another source, with another end_time, or with other tables
        unless *changes_tables*; FencedError when *epoch* is not the newest.
        """
        return self._database.once_more(
            lambda connection: _registered(connection, name, definition, changes_tables=changes_tables, epoch=epoch)
        )

    def check_registration(self, name: str, definition: Mapping[str, Any], *, changes_tables: bool) -> None:
        """Return when `register` would, for a changefeed of `cdc run`; change nothing. Raises: ConfigError."""
        with self._database.transaction(reading=True) as connection:
            require_run(found_job(connection, name))
            known = connection.execute(sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)).one_or_none()
            if known is not None:
                _require_same(known, definition, changes_tables=changes_tables)

    def begin_attempt(self, name: str, *, after: int | None = None) -> int:
        """Return the epoch of a new attempt, the greatest so far. Attempts with a smaller epoch are fenced.

        *after* is the newest epoch that the caller knows. Raises: FencedError when there is a newer one, so that of two
        runs the older one ends instead of taking over again.
        """
        raise_epoch = update(name).values(epoch=CHANGEFEEDS.c.epoch + 1).returning(CHANGEFEEDS.c.epoch)
        with self._database.transaction() as connection:
            raised = connection.execute(raise_epoch).one_or_none()
            if raised is not None and after is not None and raised.epoch > after + 1:
                raise overtaken(name, after)
        if raised is None:
            raise ConfigError(f"changefeed '{name}' is not registered in the progress store {self._database.shown}")
        return int(raised.epoch)

    def require_newest(self, name: str, epoch: int) -> None:
        """Return if *epoch* is the newest of the changefeed. Raises: FencedError."""
        with self._database.fenced_reading(name, epoch):
            pass

    def find(self, name: str) -> ChangefeedRecord | None:
        """Return the changefeed, None when it is unknown."""
        with self._database.transaction(reading=True) as connection:
            row = connection.execute(_SELECT.where(CHANGEFEEDS.c.name == name)).one_or_none()
        return None if row is None else _record(row)

    def all(self) -> list[ChangefeedRecord]:
        """Return every changefeed, by name."""
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(_SELECT.order_by(CHANGEFEEDS.c.name)).all()
        return [_record(row) for row in rows]


def _registered(
    connection: sa.Connection, name: str, definition: Mapping[str, Any], *, changes_tables: bool, epoch: int | None
) -> ChangefeedRecord:
    if epoch is not None:
        return register_changefeed(connection, name, definition, changes_tables=changes_tables, epoch=epoch)
    job = found_job(connection, name, locked=True)
    require_run(job)
    if job is not None and job.state == "pause-requested":  # the run that was to pause has died
        pause_run(connection, job)
    found = register_changefeed(connection, name, definition, changes_tables=changes_tables)
    if job is None:  # last: who creates a job of this name meanwhile has done so by now
        values = {"name": name, "state": "running", "owner": "", "locality": "", "is_clean": True, "is_run": True}
        connection.execute(sa.insert(JOBS).values(**values, created=time.time()))
    return found


def _record(row: Any) -> ChangefeedRecord:
    known, since = changefeed_record(row), moment(row.paused_at)
    if since is None:
        return known
    pause = Pause(reason=row.why or "", since=since)
    return replace(known, paused=pause) if row.pause_state == "paused" else replace(known, pause_requested=pause)


def register_changefeed(
    connection: sa.Connection,
    name: str,
    definition: Mapping[str, Any],
    *,
    changes_tables: bool = False,
    epoch: int | None = None,
    why: str | None = None,
    scans: Mapping[str, bool] | None = None,
) -> ChangefeedRecord:
    """Do what `ChangefeedRecords.register` does, in a transaction that keeps all others away from the changefeed.

    *why* is what the event of a change says. *scans* will take the place of what was chosen for added tables.
    """
    mine = sa.select(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)
    known = connection.execute(mine.with_for_update()).one_or_none()
    if epoch is not None and (known is None or known.epoch != epoch):
        raise overtaken(name, epoch)
    if known is None:
        connection.execute(
            sa.insert(CHANGEFEEDS).values(
                name=name,
                feed_id=secrets.token_hex(6),
                epoch=0,
                definition=dump(definition),
                created_at=now_text(),
                recorded=str(Timestamp()),
            )
        )
        add_event(connection, "create_changefeed", name, **_shown(definition))
    else:
        before = _require_same(known, definition, changes_tables=changes_tables)
        if not same_destination(before, definition):
            turn_away(connection, name, counters=known.counters)
        if known.token is not None:
            chosen = json.loads(known.initial_scans or "{}") if scans is None else scans
            rescan_returning(connection, known, before["tables"], definition, chosen)
        connection.execute(update(name).values(definition=dump(definition)))
        if changes := _changes(before, json.loads(dump(definition))):
            add_event(connection, "alter_changefeed", name, message=why, **changes)
    return _record(connection.execute(_SELECT.where(CHANGEFEEDS.c.name == name)).one())


def _require_same(known: sa.Row[Any], definition: Mapping[str, Any], *, changes_tables: bool) -> Mapping[str, Any]:
    """Return the definition that the row *known* has, if *definition* may take its place. Raises: ConfigError."""
    before: Mapping[str, Any] = json.loads(known.definition)
    if known.token is not None:
        require_same_source(known.name, before, definition, changes_tables=changes_tables)
        require_same_range(known.name, before, definition, latest=timestamp_of(known.latest))
    return before


def _shown(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the event of a new changefeed says of it: nothing that could be a secret."""
    options = definition.get("written", {}).get("options", {})
    source, sink = definition.get("source", []), definition.get("sink", "")
    return {
        "sources": [source] if isinstance(source, str) else source,
        "tables": len(definition.get("tables", [])),
        "sink": sink,
        "sink_type": sink.partition("://")[0],
        "format": definition.get("format"),
        **{option: options[option] for option in _TOLD if isinstance(options.get(option), str | int)},
    }


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return by name what differs between two definitions: tables, and which options; no values of those."""
    changed = [part for part in sorted({*before, *now} - {"written"}) if before.get(part) != now.get(part)]
    options = [definition.get("written", {}).get("options", {}) for definition in (before, now)]
    names = [name for name in sorted({*options[0], *options[1]}) if options[0].get(name) != options[1].get(name)]
    tables = [definition.get("tables", []) for definition in (before, now)]
    added = [table for table in tables[1] if table not in tables[0]]
    dropped = [table for table in tables[0] if table not in tables[1]]
    found = {"changed": changed, "options": names, "added": added, "dropped": dropped}
    return {what: listed for what, listed in found.items() if listed}
