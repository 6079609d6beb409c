"""`cdc preview`."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, replace

import click

from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.session import CliSession, json_option
from cdc_core.options import counted
from cdc_core.watching.preview import Previewed
from cdc_core.watching.preview import preview as previewed


@changefeed_command(environment="of definitions", has_state=False)
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True, help="Stop after so many rows.")
@click.option(
    "--live/--from-scan",
    default=False,
    help="Show the next changes, or rows that the tables hold. Default: --from-scan.",
)
@json_option
def preview(named: Named, rows: int, live: bool, as_json: bool) -> int:
    """Show the messages that the changefeed NAME in FILE would send, as its sink would get them.

    Connects to the source, and to a schema registry to look up ids, but not to the sink. Sends nothing, saves nothing,
    and leaves nothing behind. A row that cannot be encoded is shown with the reason. The exit status is 1 when there
    was one.
    """
    session = named.session
    session.start_logging(quiet=True)
    feed, *_ = named.resolved()
    found = []
    with closing(previewed(feed, rows=rows, live=live)) as messages:
        for message in messages:
            found.append(_masked(session, message))
            if not as_json:
                click.echo("\n".join(_lines(found[-1], format_=feed.encoder.name)))
    refused = sum(message.error is not None for message in found)
    if as_json:
        click.echo(json.dumps([asdict(message) for message in found], ensure_ascii=False))
    else:
        errors = f", {counted(refused, 'row')} refused" if refused else ""
        click.echo(f"{counted(len(found) - refused, 'message')}{errors}; nothing was sent")
    return 1 if refused else 0


def _masked(session: CliSession, message: Previewed) -> Previewed:
    """Return *message* without the changefeed's secrets. Key and value are the row's, and stay."""
    masked = session.masked_texts
    return replace(message, topic=masked(message.topic), headers=masked(message.headers), error=masked(message.error))


def _lines(message: Previewed, *, format_: str) -> list[str]:
    key = "NULL" if message.key is None else message.key
    lines = [f"topic {message.topic}, key {key}" if message.topic else f"key {key}"]
    if message.error is not None:
        return [*lines, f"  error: {message.error}"]
    if message.headers:
        lines.append(f"  headers: {json.dumps(message.headers, ensure_ascii=False)}")
    how = f" (decoded from {format_})" if message.decoded else ""
    return [*lines, f"  value{how}: {'NULL' if message.value is None else message.value}"]
