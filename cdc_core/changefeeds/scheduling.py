"""Schedules, which start jobs: what one may run, and their verbs. Nodes do the rest: `cdc_core.jobs.schedules`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from cronsim import CronSim, CronSimError

from cdc_core.changefeeds.finding import Finder
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.resolve import canonical_names
from cdc_core.errors import ConfigError, OptionError
from cdc_core.options import option_names, parse_options
from cdc_core.store.job_tables import DatabaseNow
from cdc_core.store.nodes import alive_sessions, require_match
from cdc_core.store.schedule_values import ScheduleRecord
from cdc_core.store.schedules import SCHEDULE_RUNS, SCHEDULES, known_schedule
from cdc_core.store.values import dump

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def next_time(cron: str, time_zone: str, *, after: float) -> float:
    """Return the first time of *cron* that is later than *after*, both in seconds since 1970.

    As in Debian's cron, a time that the clock skips when summer time begins is moved to the first minute after it, and
    one that it shows twice comes once. Raises: ConfigError for an expression or a time zone that cannot be read, or
    without any time.
    """
    expression = _NAMED.get(cron.strip().lower(), cron)
    example = "use five fields as in '30 2 * * *', or @hourly, @daily, @weekly, @monthly or @yearly"
    if len(expression.split()) != 5:
        raise ConfigError(f"'{cron}' is not a cron expression; {example}")
    try:
        times = (found.timestamp() for found in CronSim(expression, datetime.fromtimestamp(after, _zone(time_zone))))
        found = next((each for each in times if each > after), None)  # in an hour that comes twice, some are past
    except CronSimError as error:
        raise ConfigError(f"'{cron}' is not a cron expression: {str(error).lower()}; {example}") from error
    if found is None:
        raise ConfigError(f"the cron expression '{cron}' matches no time in the next 50 years; check its day and month")
    return found


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"there is no time zone '{name}'; use a name such as Europe/Berlin, or UTC") from error


class Scheduling(Finder):
    """Schedules and their verbs. Each verb returns the schedule in its new state."""

    def schedules(self) -> list[ScheduleRecord]:
        """Return every schedule, by name."""
        return self.store.schedules.all()

    def schedule(self, name: str) -> ScheduleRecord:
        """Return the schedule. Raises: UnknownError."""
        return self.store.schedules.find(name)

    def create_schedule(self, wanted: ScheduleRecord, *, at_once: bool = False) -> ScheduleRecord:
        """Add the schedule, which nodes then follow. The first run is *at_once*, or at `next_run`, or at the next time
        of the expression.

        Raises: ConfigError if the name is in use, if the expression or the time zone is not valid, or if the first run
        would be in the past; RefusedError if no live node matches its locality.
        """
        with self.store.transaction() as connection:
            now = _clock(connection)
            following = next_time(wanted.cron, wanted.time_zone, after=now)
            if wanted.next_run is not None and wanted.next_run < now:
                first = f"{datetime.fromtimestamp(wanted.next_run, UTC):%Y-%m-%d %H:%M:%S} UTC"
                raise ConfigError(
                    f"schedule '{wanted.name}': the first run at {first} is in the past; use --first-run now, or a"
                    " later time"
                )
            if connection.execute(sa.select(SCHEDULES.c.name).where(SCHEDULES.c.name == wanted.name)).first():
                raise ConfigError(
                    f"schedule '{wanted.name}' already exists; run `cdc schedule drop {wanted.name}` first, or choose "
                    "another name"
                )
            require_match(wanted.name, wanted.locality, alive_sessions(connection))
            wanted = replace(wanted, next_run=now if at_once else wanted.next_run or following)
            connection.execute(
                sa.insert(SCHEDULES).values(
                    name=wanted.name,
                    definition=dump(wanted.definition),
                    locality=str(wanted.locality),
                    owner=wanted.owner,
                    cron=wanted.cron,
                    time_zone=wanted.time_zone,
                    on_previous_running=wanted.on_previous_running,
                    on_execution_failure=wanted.on_execution_failure,
                    created=DatabaseNow(),
                    next_run=wanted.next_run,
                    version=0,
                )
            )
            return known_schedule(connection, wanted.name)

    def pause_schedule(self, name: str, reason: str) -> ScheduleRecord:
        """Start no more jobs; running jobs are not affected. Raises: ConfigError if it is already paused."""
        with self.store.transaction() as connection:
            if known_schedule(connection, name, locked=True).next_run is None:
                raise ConfigError(f"schedule '{name}' is already paused")
            return _changed(connection, name, next_run=None, reason=reason)

    def resume_schedule(self, name: str) -> ScheduleRecord:
        """Start jobs again, at the next time of the expression. Raises: ConfigError if it is not paused."""
        with self.store.transaction() as connection:
            known = known_schedule(connection, name, locked=True)
            if known.next_run is not None:
                raise ConfigError(f"schedule '{name}' is not paused")
            following = next_time(known.cron, known.time_zone, after=_clock(connection))
            return _changed(connection, name, next_run=following, reason=None)

    def drop_schedule(self, name: str) -> ScheduleRecord:
        """Delete and return the schedule; its jobs stay."""
        with self.store.transaction() as connection:
            known = known_schedule(connection, name, locked=True)
            connection.execute(sa.delete(SCHEDULE_RUNS).where(SCHEDULE_RUNS.c.schedule == name))
            connection.execute(sa.delete(SCHEDULES).where(SCHEDULES.c.name == name))
            return known


def _changed(connection: sa.Connection, name: str, *, next_run: float | None, reason: str | None) -> ScheduleRecord:
    changed = {"next_run": next_run, "reason": reason, "version": SCHEDULES.c.version + 1}
    connection.execute(sa.update(SCHEDULES).where(SCHEDULES.c.name == name).values(**changed))
    return known_schedule(connection, name)


def _clock(connection: sa.Connection) -> float:
    return float(connection.execute(sa.select(DatabaseNow())).scalar_one())


_REFUSED = ("cursor", "diff", "end_time", "mvcc_timestamp", "resolved", "updated")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,25}")


def require_schedule_name(name: str) -> None:
    """Return if *name* can be the name of a schedule. Raises: ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' is not a valid schedule name; use 1 to 25 of the characters A-Z a-z 0-9 _ -, because the"
            f" time of each run is appended"
        )


def scheduled(changefeed: Changefeed) -> Changefeed:
    """Return *changefeed* with initial_scan = 'only'. Raises: OptionError for options that such a run cannot have."""
    owner = f"changefeed '{changefeed.name}'"
    given = canonical_names(changefeed.options, option_names(ChangefeedOptions), owner=owner)
    mine = {name: given[name] for name in _REFUSED if name in given}
    parsed = parse_options(ChangefeedOptions, mine, owner=owner)
    for name in mine:
        value = getattr(parsed, name)
        if value is not None and value is not False:
            raise OptionError(
                f"{owner} cannot be scheduled with option '{name}': each run is a scan with one timestamp; remove"
                f" the option"
            )
    if given.get("initial_scan", "only") != "only":
        raise OptionError(
            f"{owner} cannot be scheduled with initial_scan = '{given['initial_scan']}': each run only scans;"
            " remove the option"
        )
    written = changefeed.written
    return replace(
        changefeed,
        options=_scan_only(changefeed.options),
        written=written and {**written, "options": _scan_only(written.get("options", {}))},
    )


def _scan_only(options: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name.lower() != "initial_scan"}
    return {**kept, "initial_scan": "only"}
