"""`cdc events`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.session import CliSession
from cdc_core.errors import ConfigError
from cdc_core.options import read_duration
from cdc_core.store.event_values import KINDS, Event
from cdc_core.telemetry.status import shown_moment

_LATEST = 100
_POLL_S = 1.0


@changefeed_command(has_file=False)
@click.option("--since", metavar="TIME", help="Only what happened since then: 1h30m ago, or at 2026-05-04T10:00:00Z.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Only events of this kind. May be repeated.")
@click.option(
    "--limit", type=click.IntRange(1), help=f"Only so many of the latest. Default: {_LATEST}, or all --since."
)
@click.option("--follow", is_flag=True, help="Wait for more until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON.")
def events(
    named: Named, since: str | None, kinds: tuple[str, ...], limit: int | None, follow: bool, as_json: bool
) -> int:
    """Show the event log of a progress store, the first event first: the changefeed NAME in FILE, or without NAME all
    changefeeds and nodes.

    FILE, NAME, --state and --store are as in `cdc show`. With --store, or with the environment variable CDC_STORE where
    FILE is no file, FILE is the name of a changefeed or job. One that was removed still has its events, for 30 days.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigError(f"--kind: there are no events of kind '{unknown[0]}'; the kinds are {', '.join(KINDS)}")
    begin = None if since is None else since_of(since, now=datetime.now(UTC))
    limit = _LATEST if limit is None and begin is None else limit
    with named.read() as (changefeeds, wanted):
        found, tail = changefeeds.follow_events(wanted, since=begin, kinds=kinds, limit=limit)
        for event in found:
            _print(named.session, event, as_json=as_json)
        while follow:
            for event in tail.poll():
                _print(named.session, event, as_json=as_json)
            time.sleep(_POLL_S)
    return 0


def since_of(text: str, *, now: datetime) -> datetime:
    """Return the moment that *text* means: a duration before *now*, or a moment of ISO 8601. Raises: ConfigError."""
    try:
        return now - timedelta(seconds=read_duration(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--since: '{text}' is no time; write a duration such as 1h30m, or a moment such as 2026-05-04T10:00:00Z"
        ) from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


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
