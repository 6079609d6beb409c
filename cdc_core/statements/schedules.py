"""The grammar of the statements about schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from cdc_core.options import did_you_mean
from cdc_core.statements.creation import delivery, pairs, targets
from cdc_core.statements.options import moment
from cdc_core.statements.reading import Reading
from cdc_core.statements.values import ControlSchedules, CreateSchedule, ScheduleVerb, ShowSchedules
from cdc_core.store.schedule_values import OnExecutionFailure, OnPreviousRunning

__all__ = ["control_schedules", "create_schedule", "show_schedules"]

_CREATE = "CREATE SCHEDULE label FOR CHANGEFEED table, … INTO 'uri' WITH option, … RECURRING '@daily'"
_CHOICES = {"on_execution_failure": get_args(OnExecutionFailure), "on_previous_running": get_args(OnPreviousRunning)}
_OPTIONS = (*_CHOICES, "first_run", "time_zone")


def create_schedule(reading: Reading, now: datetime) -> CreateSchedule:
    """Take what follows `CREATE SCHEDULE`. Raises: OptionError."""
    if_not_exists = reading.has("IF", "NOT", "EXISTS")
    label = None if reading.is_word("FOR") else reading.name("the label of the schedule")
    reading.require("FOR", "CHANGEFEED", shape=_CREATE)
    tables = () if reading.is_word("INTO", "WITH", "AS") else targets(reading)
    at = reading.at
    changefeed = delivery(reading, now, tables, until="RECURRING")
    if changefeed.name is not None:
        raise reading.refused("a schedule is named by its label; remove the option 'name'", at)
    reading.require("RECURRING", shape=_CREATE)
    cron = reading.string("when the changefeed runs, such as '@daily',")
    options: dict[str, Any] = {}
    if reading.has("WITH"):
        reading.require("SCHEDULE", "OPTIONS", shape=f"{_CREATE} WITH SCHEDULE OPTIONS first_run = 'now'")
        options = _options(reading, now)
    return CreateSchedule(label=label, if_not_exists=if_not_exists, changefeed=changefeed, cron=cron, **options)


def _options(reading: Reading, now: datetime) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, written, value in pairs(reading):
        name = written.lower()
        if name not in _OPTIONS:
            raise reading.refused(f"a schedule has no option '{name}'{did_you_mean(name, _OPTIONS)}", at)
        if not value:
            raise reading.refused(f"option '{name}' needs a value; write {name} = '…'", at)
        if name in found:
            raise reading.refused(f"option '{name}' is given twice; keep one of them", at)
        if name in _CHOICES and value.lower() not in _CHOICES[name]:
            raise reading.refused(f"option '{name}' must be one of {', '.join(_CHOICES[name])}", at)
        if name == "first_run":
            value = "now" if value.lower() == "now" else moment(value, now)
        found[name] = value.lower() if name in _CHOICES else value
    return found


def control_schedules(reading: Reading) -> ControlSchedules:
    """Take `PAUSE`, `RESUME` or `DROP`, and what follows it."""
    verb: ScheduleVerb = reading.skip().text.upper()  # type: ignore[assignment]
    reading.skip()
    return ControlSchedules(verb=verb, schedules=tuple(reading.names("the label of a schedule")))


def show_schedules(reading: Reading) -> ShowSchedules:
    """Take `SHOW SCHEDULES`, or `SHOW SCHEDULE` and a label."""
    reading.skip()
    if reading.skip().text.upper() == "SCHEDULE":
        return ShowSchedules(schedule=reading.name("the label of the schedule"))
    reading.has("FOR", "CHANGEFEED")
    return ShowSchedules()
