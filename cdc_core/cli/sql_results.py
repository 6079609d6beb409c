"""What a statement returns, as a table, as CSV or as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc_core.options import counted
from cdc_core.store.job_values import moment

Format = Literal["table", "csv", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows under names of columns, and what else is to be said."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    notices: Sequence[str] = ()


def shown(result: Result, how: Format) -> Iterator[str]:
    """Yield the lines of the rows: as JSON, one object for each."""
    if how == "json":
        for row in result.rows:
            yield json.dumps(dict(zip(result.columns, row, strict=True)))
    elif how == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([result.columns, *result.rows])
        yield from text.getvalue().splitlines()
    else:
        yield from _table(result)


def shown_time(seconds: float | None) -> str | None:
    """Return a time of the store as text."""
    at = moment(seconds)
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%SZ}"


def _table(result: Result) -> Iterator[str]:
    rows = [["NULL" if cell is None else " ".join(cell.split()) for cell in row] for row in result.rows]
    widths = [max(map(len, column)) for column in zip(result.columns, *rows, strict=True)]
    yield _line(result.columns, widths)
    yield "-+-".join("-" * width for width in widths)
    yield from (_line(row, widths) for row in rows)
    yield f"({counted(len(rows), 'row')})"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
