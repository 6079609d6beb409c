"""`cdc show` and `cdc events`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from cdc_core.changefeeds.diagnosing import continues_with
from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.session import CliSession
from cdc_core.cli.tables import colored
from cdc_core.errors import ConfigError
from cdc_core.options import read_duration
from cdc_core.queries.selection import Selection
from cdc_core.store.event_values import KINDS, Event
from cdc_core.store.liveness import ENDINGS
from cdc_core.store.node_reports import by_address
from cdc_core.store.reports import Report
from cdc_core.telemetry.status import Status, behind_text, delivered_text, shown_moment, size_text

_LATEST = 100
_POLL_S = 1.0
_EVENTS = 20
"""How many of the latest changes of a job's state are listed; with --json, all."""


@changefeed_command(has_file=False)
@click.option("--json", "as_json", is_flag=True, help="Print each changefeed as one line of JSON.")
def show(named: Named, as_json: bool) -> int:
    """Show the changefeed NAME in FILE; without NAME, every changefeed in the same progress store.

    Without FILE, the default store is that of the current directory. Works while changefeeds run, on this host or
    another, and changes nothing.

    With --store, or with the environment variable CDC_STORE if FILE is not a file, FILE is the name of a changefeed or
    job in that store; without FILE, all of them are shown.
    """
    session = named.session
    with named.read() as (changefeeds, wanted):
        found = changefeeds.whole_reports() if wanted is None else [changefeeds.report(wanted)]
        if not (found or as_json):
            click.echo(f"there are no changefeeds in the progress store {changefeeds.store.shown}")
        for index, each in enumerate(found):
            if as_json:
                session.echo_json(each.to_json())
                continue
            title, *lines = map(session.masked, report_lines(each))
            click.echo("\n".join([*[""] * bool(index), colored(title, each.state), *lines]))
    return 0


def report_lines(report: Report) -> Iterator[str]:
    """Yield the report as a block of lines, without what is not known."""
    shown = report.to_json()
    job = shown["job"]
    if job is None:
        asked = report.known.pause_requested
        before, after = ("", "") if asked is None else ("pause-requested, ", f": {asked.reason}")
        yield f"changefeed '{shown['name']}': {before}{_state(report, shown)}{after}"
    else:
        reason = "" if job["state"] in ("running", "retrying") or job["reason"] is None else f": {job['reason']}"
        yield f"job '{shown['name']}': {job['state']}{' on node ' + job['node'] if job['node'] else ''}{reason}"
    held_s, shards = report.protected_age_s, shown["shards"]
    rows = [
        *(() if job is None else _job(report, shown, job)),
        ("source", f"{', '.join(report.known.sources)}: {', '.join(shown['tables'] or ())}"),
        ("query", " ".join((shown["query"] or "").split())),
        *(
            ("selected", f"{table}: {Selection.parse(table, section).shown}")
            for table, section in (shown["selections"] or {}).items()
        ),
        ("sink", f"{shown['sink']} ({shown['format']})"),
        ("scan", shown["scan"] and "{done:,} of {total:,} {unit}".format(**shown["scan"])),
        *(("rescan", _rescan(each)) for each in shown["rescans"]),
        ("high-water mark", _high_water(report)),
        ("held back", None if held_s is None else f"{behind_text(held_s)} of the source's history"),
        *(("shard", _shard(each)) for each in shards),
        ("delivered", _delivered(shown)),
        ("slices", _slices(report, shown)),
        ("last saved", report.known.saved_at and shown_moment(report.known.saved_at)),
        ("dead letters", shown["dead_letters"] and f"{shown['dead_letters']:,}"),
        ("source's history", _history(report, shown)),
        ("source says", shown["notice"]),
        ("retrying", report.retrying.reason if report.job is None and report.retrying is not None else None),
        ("waiting for", _waiting(shown)),
        ("error", shown["error"]),
        ("continue with", continues_with(report)),
    ]
    if job is not None:
        rows += [("" if number else "history", _event(event)) for number, event in enumerate(job["history"][-_EVENTS:])]
    for label, text in rows:
        if text:
            yield f"  {label:17} {text}"


def _job(report: Report, shown: dict[str, Any], job: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    yield "status", report.shown_status
    yield "owner", job["owner"]
    yield "locality", job["execution_locality"]
    yield "last run", _state(report, shown) if report.status else None


def _event(event: dict[str, Any]) -> str:
    node = f", by node {event['node']}" if event["node"] else ""
    reason = f": {event['reason']}" if event["reason"] else ""
    return f"{shown_moment(datetime.fromisoformat(event['at']))} {event['state']}{node}{reason}"


def _state(report: Report, shown: dict[str, Any]) -> str:
    paused, status = report.known.paused, report.status
    where = f"on {shown['host']} (process {shown['pid']})"
    if paused is not None:
        return f"paused since {shown_moment(paused.since)}: {paused.reason}"
    if status is None:
        return "has never run" if report.state == "new" else "no run has saved its status"
    if report.is_alive:
        return f"{shown['phase'] if report.retrying is None else 'retrying'} {where}"
    if status.values.get("phase") not in ENDINGS:
        return f"silent since {shown_moment(status.written_at)}; was {shown['phase']} {where}"
    return f"{shown['phase']} at {shown_moment(status.written_at)} {where}"


def _rescan(shown: dict[str, Any]) -> str:
    what = shown["table"] or "all tables"
    if shown["where"]:
        what += f" where {shown['where']}"
    if shown["new_slot"]:
        what += ", with a new slot"
    if shown["state"] == "waiting":
        return f"{what}: requested at {shown_moment(datetime.fromisoformat(shown['asked_at']))}, not started"
    return f"{what}: {shown['state']}, all its rows are later than {shown['began']}"


def _shard(shown: dict[str, Any]) -> str:
    behind = "no resolved timestamp yet" if shown["behind_s"] is None else f"{behind_text(shown['behind_s'])} behind"
    return f"{shown['source']}: {behind}"


def _high_water(report: Report) -> str:
    mark = report.known.high_water
    shown = shown_moment(mark.to_datetime()) if mark else "none yet"
    return shown if report.behind_s is None else f"{shown} ({behind_text(report.behind_s)} behind)"


def _delivered(shown: dict[str, Any]) -> str:
    totals = shown["totals"]
    if not totals["steps"]:
        return ""
    rate = "" if shown["rows_per_s"] is None else f" ({shown['rows_per_s']:,.0f} rows/s)"
    status = Status(changefeed=shown["name"], phase="", bytes=totals["bytes"], files=totals["files"])
    again = f", {totals['rows_repeated']:,} of them in repeated steps" if totals["rows_repeated"] else ""
    return f"{totals['rows']:,} rows{rate}{again}, {totals['messages']:,} messages, {delivered_text(status)}"


def _slices(report: Report, shown: dict[str, Any]) -> str:
    """Return where the last slices ran, by the names of nodes where it is one of theirs."""
    nodes, slices = by_address(report.nodes), (shown["slices"] or {}).items()
    return ", ".join(f"{count} on {nodes[host].name if host in nodes else host}" for host, count in slices)


def _history(report: Report, shown: dict[str, Any]) -> str:
    gauges = [_gauge(name, value) for name, value in report.gauges.items()]
    failed, age_s = shown["releases_failed"], report.stale_gauges_age_s
    gauges += [] if age_s is None else [f"as measured {behind_text(age_s)} ago"]
    return ", ".join([*gauges, *([f"not released after the last {failed:,} steps"] if failed else [])])


def _gauge(name: str, value: float) -> str:
    """Return a gauge of the source with its unit, which its name ends with."""
    what, _, unit = name.rpartition("_")
    text = {"bytes": size_text(value), "s": f"{value:g} s"}.get(unit)
    return f"{name} {value:g}" if text is None else f"{what.replace('_', ' ')} {text}"


def _waiting(shown: dict[str, Any]) -> str:
    if shown["retrying"] is not None:  # which says the rest
        return shown["waiting_on"] or ""
    at = shown["next_attempt_at"]
    retry = "" if at is None else f"next attempt at {shown_moment(datetime.fromisoformat(at))}"
    return "; ".join(filter(None, (shown["waiting_on"], shown["waiting_for"], retry)))


@changefeed_command(has_file=False)
@click.option(
    "--since",
    metavar="TIME",
    help="How far back to show events: a duration such as 1h30m, or a time such as 2026-05-04T10:00:00Z.",
)
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Show only events of this kind. May be repeated.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help=f"Show only this many of the latest events. Default: {_LATEST}, or all with --since.",
)
@click.option("--follow", is_flag=True, help="Wait for more events until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON.")
def events(
    named: Named, since: str | None, kinds: tuple[str, ...], limit: int | None, follow: bool, as_json: bool
) -> int:
    """Show the event log of the changefeed NAME in FILE, oldest event first; without NAME, the log of all changefeeds
    and nodes in the store.

    FILE, NAME, --state and --store mean the same as in `cdc show`. With --store, or with the environment variable
    CDC_STORE if FILE is not a file, FILE is the name of a changefeed or job. The events of a removed changefeed are
    kept for 30 days.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigError(f"--kind: there are no events of kind '{unknown[0]}'; the kinds are {', '.join(KINDS)}")
    begin = None if since is None else since_of(since, now=datetime.now(UTC))
    limit = _LATEST if limit is None and begin is None else limit
    with named.read() as (changefeeds, wanted):
        found, tail = changefeeds.follow_events(wanted, since=begin, kinds=kinds, limit=limit)
        if wanted is not None and not (found or follow):
            changefeeds.known(wanted)  # a removed one has events
        for event in found:
            _print(named.session, event, as_json=as_json)
        while follow:
            for event in tail.poll():
                _print(named.session, event, as_json=as_json)
            time.sleep(_POLL_S)
    return 0


def since_of(text: str, *, now: datetime, option: str = "--since") -> datetime:
    """Return the moment that *text* means: a duration before *now*, or a moment of ISO 8601. Raises: ConfigError."""
    try:
        return now - timedelta(seconds=read_duration(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{option}: '{text}' is not a time; write a duration such as 1h30m, or a time such as 2026-05-04T10:00:00Z"
        ) from None


def event_text(event: Event) -> str:
    """Return *event* as one line."""
    about = event.changefeed or ""
    node = f"node {event.node}" if event.node else ""
    details = ", ".join(f"{name}={_value(value)}" for name, value in event.details.items())
    times = "" if event.times == 1 else f"{event.times} times, the last at {shown_moment(event.last_at or event.at)}"
    parts = [part for part in (node, event.message, details and f"({details})", times and f"[{times}]") if part]
    return " ".join([shown_moment(event.at), *filter(None, (about, event.kind)), *parts])


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _print(session: CliSession, event: Event, *, as_json: bool) -> None:
    if as_json:
        session.echo_json(event.to_json())
    else:
        click.echo(session.masked(event_text(event)))
