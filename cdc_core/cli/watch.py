"""`cdc watch` and `cdc preview`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, replace

import click

from cdc_core.cli.completion import complete_name
from cdc_core.cli.located import Named, changefeed_command, store_option
from cdc_core.cli.session import FILE, CliSession, debug_option, json_option
from cdc_core.cli.stop_signals import take_back_interrupts
from cdc_core.config.alteration import assigned
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.changefeed_options import NOT_OF_SCANS
from cdc_core.config.resolve import resolve_without_sink
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.sinkless import refuse_unused
from cdc_core.delivery.row_json import is_json
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.options import counted
from cdc_core.plugins.host import PluginHost
from cdc_core.telemetry.logs import printable
from cdc_core.watching.preview import Previewed, text_or_hex
from cdc_core.watching.preview import preview as previewed
from cdc_core.watching.watch import Watch, WatchedRow

_NULL = "NULL"
_POLL_INTERVAL_S = 0.5


@click.command
@click.argument("file", metavar="[FILE", type=FILE, required=False)
@click.argument("name", metavar="[NAME]]", required=False, shell_complete=complete_name)
@click.option("--source", metavar="URI", help="Watch this source instead of a changefeed in FILE.")
@click.option("--table", "tables", metavar="TABLE", multiple=True, help="Watch this table. May be repeated.")
@click.option("--query", metavar="SELECT", help="Watch the result of this query instead of tables.")
@click.option("--format", "format_", metavar="FORMAT", help="Message format. Default: the format in FILE, or json.")
@click.option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set this option of the changefeed. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of CSV.")
@store_option
@debug_option
@click.pass_obj
def watch(
    session: CliSession,
    file: str | None,
    name: str | None,
    source: str | None,
    tables: tuple[str, ...],
    query: str | None,
    format_: str | None,
    assignments: tuple[str, ...],
    as_json: bool,
    store: str | None,
) -> int:
    """Print the table, key and value of each message of the changefeed NAME in FILE, or of tables at a source.

    Does not use the changefeed's sink, saves no progress, and leaves nothing at the source. Begins with the existing
    rows of the tables and continues until Ctrl-C. With --set initial_scan=only, ends after these rows and ignores
    options in FILE that a scan cannot have, such as resolved. Prints CSV, in which a resolved mark has NULL instead of
    a table and a key.
    """
    changefeed = _chosen(session, file, name, source=source, tables=tables, query=query, store=store)
    given = assigned(assignments)
    refuse_unused(given, owner="--set")
    scans = any(f"{name}={value}".lower() == "initial_scan=only" for name, value in given.items())
    kept = {name: value for name, value in changefeed.options.items() if not (scans and name.lower() in NOT_OF_SCANS)}
    options = {**kept, **given}
    changefeed = replace(changefeed, options=options, format=format_ or changefeed.format)
    session.start_logging(quiet=True)
    print_messages(resolved_to_watch(session, changefeed), as_json=as_json)
    return 0


def print_messages(feed: ResolvedChangefeed, *, as_json: bool) -> None:
    """Print the messages of *feed* as they come, until it ends. Raises: as `Watch`."""
    # Not in the main thread: ADBC handles SIGINT there during its calls, and loses one that comes as a call ends.
    with ThreadPoolExecutor(1, thread_name_prefix="watch") as pool, closing(Watch(feed, looked_at=True)) as watched:
        if not as_json:
            click.echo("table,key,value")
        batches = watched.batches()
        while (batch := _awaited(pool.submit(next, batches, None))) is not None:  # echo flushes
            lines = _json_lines(batch, embedded=feed.encoder.name == "json") if as_json else _csv_lines(batch)
            click.echo(printable(lines) if sys.stdout.isatty() else lines, nl=False, color=True)


def _awaited(batch: Future[Sequence[WatchedRow] | None]) -> Sequence[WatchedRow] | None:
    """Wait for *batch*, unless Ctrl-C ends the wait. Raises: as `Watch`."""
    while not batch.done():
        take_back_interrupts()
        wait([batch], _POLL_INTERVAL_S)
    return batch.result()


def resolved_to_watch(session: CliSession, changefeed: Changefeed) -> ResolvedChangefeed:
    """Return *changefeed* resolved without its sink; from now on *session* masks its secrets. Raises: ConfigError."""
    session.add_secrets(secret_forms(frozenset().union(*map(uri_secrets, (*changefeed.sources, changefeed.sink)))))
    feed = resolve_without_sink(changefeed, PluginHost.load())
    session.add_secrets(feed.secrets())
    return feed


def _chosen(
    session: CliSession,
    file: str | None,
    name: str | None,
    *,
    source: str | None,
    tables: tuple[str, ...],
    query: str | None,
    store: str | None,
) -> Changefeed:
    if file is None:
        if source is None or not (tables or query):
            raise ConfigError("nothing to watch; name a FILE with a changefeed, or a --source with --table or --query")
        if store is not None:
            raise ConfigError("--store takes the name of a changefeed in that store; remove --store or --source")
        session.mask_uri(source)
        return Changefeed(name="watch", source=source, tables=tables, query=query)
    if source is not None or tables or query is not None:
        raise ConfigError(
            "FILE cannot be combined with --source, --table and --query, because either describes what to watch; remove"
            " one of them"
        )
    named = Named.of(session, file, name, store=store, has_state=False, environment="ignored")
    return named.located()[0]


def _csv_lines(batch: Sequence[WatchedRow]) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for table, key, value in batch:
        texts = (table, text_or_hex(key), text_or_hex(value))
        writer.writerow([_NULL if text is None else text for text in texts])
    return lines.getvalue()


def _json_lines(batch: Sequence[WatchedRow], *, embedded: bool) -> str:
    def shown(value: bytes | None) -> str:
        text = text_or_hex(value)
        return text if embedded and text and is_json(text) else json.dumps(text or None, ensure_ascii=False)

    return "".join(
        f'{{"table": {json.dumps(table, ensure_ascii=False)}, "key": {shown(key)}, "value": {shown(value)}}}\n'
        for table, key, value in batch
    )


@changefeed_command(environment="of definitions", has_state=False)
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True, help="Stop after this many rows.")
@click.option(
    "--live/--from-scan",
    default=False,
    help="Show only new changes, or start with the existing rows of the tables. Default: --from-scan.",
)
@json_option
def preview(named: Named, rows: int, live: bool, as_json: bool) -> int:
    """Show the messages that the changefeed NAME in FILE would send, as its sink would receive them.

    Connects to the source, and to a schema registry to look up ids, but not to the sink. Sends no messages, saves no
    progress, and leaves no objects behind. A row that cannot be encoded is shown with the reason, and the exit status
    is 1.
    """
    session = named.session
    session.start_logging(quiet=True)
    feed, *_ = named.resolved()
    found = []
    with closing(previewed(feed, rows=rows, live=live)) as messages:
        for message in messages:
            found.append(_masked(session, message))
            if not as_json:
                click.echo(printable("\n".join(_lines(found[-1], format_=feed.encoder.name))))
    refused = sum(message.error is not None for message in found)
    if as_json:
        click.echo(printable(json.dumps([asdict(message) for message in found], ensure_ascii=False)))
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
