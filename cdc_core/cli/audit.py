"""`cdc audit`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc_core.changefeeds.auditing import audit as audited
from cdc_core.cli.located import Named, changefeed_command, progress_at
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.auditing.comparison import Difference, Figures


@changefeed_command(environment="of definitions")
@click.option(
    "--at",
    metavar="RESOLVED",
    help="Compare as of this resolved mark. Default: the newest mark at the time the source is read.",
)
@click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="How long to wait for a resolved mark after the source has been read. Default: 60, or 0 if the "
    "changefeed is not running.",
)
@click.option(
    "--rows", type=click.IntRange(min=0), default=100, show_default=True, help="Print at most this many differences."
)
@click.option(
    "--temporary-directory",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory for temporary files, which take about as much space as the tables. Default: the system's temporary"
    " directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def audit(named: Named, at: str | None, wait: float | None, rows: int, directory: Path | None, as_json: bool) -> int:
    """Compare the rows that the changefeed NAME in FILE has delivered with the rows at its source.

    Reads both sides completely and leaves no objects behind. Prints the rows that are missing at the destination, those
    that exist only there, and those with different values. The exit status is 1 if there are any such rows, and 2 if
    the changefeed cannot be audited.
    """
    session = named.session
    session.start_logging(quiet=True)
    feed, _, url = named.resolved()
    with tempfile.TemporaryDirectory(prefix="cdc-audit-", dir=directory) as temporary:
        with progress_at(url) as progress:
            found = audited(progress, feed, Path(temporary), at=_mark(at), wait_s=wait, most_shown=rows)
        for difference in found.differences():
            line = _json(_object(difference)) if as_json else _line(difference)
            click.echo(session.masked(line))
    figures = found.figures
    click.echo(_json(figures_object(figures)) if as_json else _figures(figures, shown=rows))
    return 1 if figures.differences else 0


def _mark(text: str | None) -> Timestamp | None:
    try:
        return None if text is None else Timestamp.parse(text)
    except ValueError:
        raise ConfigError(
            f"--at {text}: this is not a resolved mark; write it as the destination shows it, such as {_EXAMPLE}"
        ) from None


_EXAMPLE = Timestamp(1769863800000000000, 0)


def _line(difference: Difference) -> str:
    key = _json(list(difference.key.values()))
    line = f"{difference.table} {difference.finding} {key}"
    columns = (
        f"{column}: {_json(value)} at the source, {_json(difference.destination[column])} at the destination"
        for column, value in difference.source.items()
    )
    return f"{line} {'; '.join(columns)}".rstrip()


def _object(difference: Difference) -> dict[str, Any]:
    found: dict[str, Any] = {
        "table": difference.table.full,
        "finding": str(difference.finding),
        "key": dict(difference.key),
    }
    if difference.source:
        found |= {"source": dict(difference.source), "destination": dict(difference.destination)}
    return found


def _figures(figures: Figures, *, shown: int) -> str:
    compared = f"{counted(figures.rows, 'row')} of {counted(figures.tables, 'table')} compared at {figures.cut}"
    moved = f"; {figures.changed:,} of them changed until {figures.upto}" if figures.changed else ""
    if not figures.differences:
        return f"{compared}{moved}: all are the same"
    kinds = ", ".join(f"{getattr(figures, kind):,} {kind}" for kind in ("missing", "extra", "different"))
    more = f", {shown:,} of them printed" if figures.differences > shown else ""
    return f"{compared}{moved}: {counted(figures.differences, 'difference')} ({kinds}){more}"


def figures_object(figures: Figures) -> Mapping[str, Any]:
    """Return what was compared, and how many rows differ, as JSON values."""
    names = ("tables", "rows", "changed", "missing", "extra", "different")
    counts = {name: getattr(figures, name) for name in names}
    return {"resolved": str(figures.cut), "until": str(figures.upto), **counts}


def _json(value: Any) -> str:
    def shown(inner: Any) -> str:
        return f"\\x{inner.hex()}" if isinstance(inner, bytes) else str(inner)

    return json.dumps(value, ensure_ascii=False, default=shown)
