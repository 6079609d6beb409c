"""`cdc schedule`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import click

from cdc_core.changefeeds.scheduling import require_schedule_name, scheduled
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.job_commands import changefeeds_at, job_command, job_store_option, require_owner, user_name
from cdc_core.cli.located import find_changefeed, resolved
from cdc_core.cli.session import FILE, CliSession, debug_option, json_option
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import require_references
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.store.job_values import moment
from cdc_core.store.schedule_values import OnExecutionFailure, OnPreviousRunning, ScheduleRecord
from cdc_core.telemetry.status import shown_moment
from cdc_core.timestamp import Timestamp


@click.group
def schedule() -> None:
    """Run a changefeed as a scan, repeatedly, on a cron schedule.

    Each run is a job of its own, which a node runs: see `cdc docs schedules`.
    """


@schedule.command(short_help="Create a schedule.")
@click.argument("name")
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("changefeed", required=False)
@click.option("--cron", required=True, help="When to run: a cron expression such as '30 2 * * *' or @daily.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of --cron, such as Europe/Berlin.")
@click.option(
    "--first-run",
    metavar="now|TIME",
    help="Time of the first run: now, or an ISO 8601 time with a time zone. Default: when --cron next matches.",
)
@click.option(
    "--on-previous-running",
    type=click.Choice(get_args(OnPreviousRunning)),
    default="wait",
    show_default=True,
    help="What to do if the previous run has not ended: start another run, skip this run, or wait for the previous one"
    " to end.",
)
@click.option(
    "--on-execution-failure",
    type=click.Choice(get_args(OnExecutionFailure)),
    default="reschedule",
    show_default=True,
    help="What to do after a failed run: retry a minute later, run at the next scheduled time, or pause the schedule.",
)
@click.option("--owner", metavar="USER", help="Owner of the jobs. Default: the user of this process.")
@job_store_option
@json_option
@debug_option
@click.pass_obj
def create(
    session: CliSession,
    /,
    name: str,
    file: str,
    changefeed: str | None,
    first_run: str | None,
    owner: str | None,
    store: str | None,
    as_json: bool,
    **rules: Any,
) -> int:
    """Create the schedule NAME for CHANGEFEED in the TOML file FILE, or for a pipeline that a package publishes.

    A run only scans the tables: initial_scan = "only" is implied.
    """
    found = find_changefeed(file, changefeed)[0]
    wanted = new_schedule(session, name, found, owner=owner, first_run=first_run, **rules)
    with changefeeds_at(session, store, create=True) as changefeeds:
        _print(session, changefeeds.create_schedule(wanted, at_once=first_run == "now"), as_json=as_json)
    return 0


def new_schedule(
    session: CliSession, name: str, changefeed: Changefeed, *, owner: str | None, first_run: str | None, **rules: Any
) -> ScheduleRecord:
    """Return the schedule that is to be created for *changefeed*; *rules* are as in the record. Raises: ConfigError."""
    require_schedule_name(name)
    owner = require_owner(user_name() if owner is None else owner)
    feed = resolved(session, scheduled(changefeed))
    require_references(feed.stored, feed.name)
    return ScheduleRecord(
        name=name,
        definition=feed.definition(),
        locality=Locality.parse(feed.options.execution_locality or ""),
        owner=owner,
        **rules,
        next_run=None if first_run in (None, "now") else _moment(str(first_run)),
    )


@schedule.command("list")
@job_command
def list_(session: CliSession, changefeeds: Changefeeds, as_json: bool) -> None:
    """List the schedules of the store."""
    found = changefeeds.schedules()
    if not (found or as_json):
        click.echo(f"the progress store {changefeeds.store.shown} has no schedules")
    for index, each in enumerate(found):
        if index and not as_json:
            click.echo()
        _print(session, each, as_json=as_json)


@schedule.command(short_help="Pause a schedule: it starts no more runs.")
@click.argument("name")
@click.option("--reason", default="requested", show_default=True, help="Reason to show in `cdc schedule list`.")
@job_command
def pause(session: CliSession, changefeeds: Changefeeds, name: str, reason: str, as_json: bool) -> None:
    """Pause the schedule NAME: it starts no more runs. Runs that have started are not affected."""
    _print(session, changefeeds.pause_schedule(name, reason), as_json=as_json)


@schedule.command(short_help="Resume a paused schedule.")
@click.argument("name")
@job_command
def resume(session: CliSession, changefeeds: Changefeeds, name: str, as_json: bool) -> None:
    """Resume the paused schedule NAME. Its next run starts when the cron expression next matches."""
    _print(session, changefeeds.resume_schedule(name), as_json=as_json)


@schedule.command(short_help="Remove a schedule; its jobs stay.")
@click.argument("name")
@job_command
def drop(session: CliSession, changefeeds: Changefeeds, name: str, as_json: bool) -> None:
    """Remove the schedule NAME. Its jobs stay: end running jobs with `cdc cancel`."""
    dropped = changefeeds.drop_schedule(name)
    if as_json:
        session.echo_json(_as_json(dropped))
    else:
        click.echo(f"schedule '{name}' is removed")


def _moment(text: str) -> float:
    try:
        return Timestamp.read(text).wall / 1e9
    except ValueError as error:
        raise ConfigError(
            f"the first run '{text}' must be now, or a time with a zone such as 2026-01-31T12:00:00Z"
        ) from error


def _print(session: CliSession, found: ScheduleRecord, *, as_json: bool) -> None:
    if as_json:
        session.echo_json(_as_json(found))
        return
    for line in _lines(found):
        click.echo(session.masked(line))


def _lines(found: ScheduleRecord) -> Iterator[str]:
    next_run = moment(found.next_run)
    yield f"schedule '{found.name}': " + ("paused" if next_run is None else f"next run {shown_moment(next_run)}")
    shown = _as_json(found)
    runs = ", ".join(f"{run.job} ({run.state or 'forgotten'})" for run in found.runs)
    for label, text in (
        ("cron", f"{found.cron} ({found.time_zone})"),
        ("source", f"{shown['source']}: {', '.join(shown['tables'])}"),
        ("sink", f"{shown['sink']} ({shown['format']})"),
        ("owner", found.owner),
        ("nodes", str(found.locality)),
        ("previous running", found.on_previous_running),
        ("failure", found.on_execution_failure),
        ("last run", found.last_job),
        ("running", runs),
        ("reason", found.reason),
    ):
        if text:
            yield f"  {label:17} {text}"


def _as_json(found: ScheduleRecord) -> dict[str, Any]:
    definition = found.definition
    source = definition["source"]
    return {
        "name": found.name,
        "state": "paused" if found.next_run is None else "active",
        "cron": found.cron,
        "time_zone": found.time_zone,
        "next_run": _iso(found.next_run),
        "last_job": found.last_job,
        "runs": [{"job": run.job, "state": run.state} for run in found.runs],
        "reason": found.reason,
        "on_previous_running": found.on_previous_running,
        "on_execution_failure": found.on_execution_failure,
        "owner": found.owner,
        "execution_locality": str(found.locality) or None,
        "created": _iso(found.created),
        "source": source if isinstance(source, str) else ", ".join(source),
        **{name: definition[name] for name in ("tables", "sink", "format")},
    }


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
