"""The overview: every changefeed of the store in a table, and the nodes that are alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from cdc_core.masking import masked_uri
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.reports import Report
from cdc_core.telemetry.metrics import ROWS
from cdc_core.uris import place_of
from cdc_core.web.page.history import Measurement, Snapshot
from cdc_core.web.page.texts import Tone, tone_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which changefeeds are listed: those whose name, source, sink or owner has `text`, in a state of `tone`.

    They are in the order of a column with the id `sort`, or else by name.
    """

    text: str = ""
    tone: str = ""
    sort: str = ""

    @property
    def is_on(self) -> bool:
        return bool(self.text or self.tone)

    def admits(self, row: FeedRow) -> bool:
        wanted, texts = self.text.lower(), (row.name, row.source, row.sink, row.owner)
        return self.tone in ("", row.tone) and any(wanted in text.lower() for text in texts)

    def address(self, **changed: str) -> str:
        """Return the address of the list, with these values in place of those of `tone` or `sort`."""
        values = {"q": self.text, "tone": self.tone, "sort": self.sort, **changed}
        query = urlencode({name: value for name, value in values.items() if value})
        return f"/ui?{query}" if query else "/ui"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRow:
    """One changefeed as a line of the table."""

    report: Report
    measured: Measurement
    name: str
    tone: Tone
    source: str
    sink: str
    owner: str

    @classmethod
    def of(cls, report: Report, measured: Measurement) -> FeedRow:
        sources = [place_of(masked_uri(source)) for source in report.known.sources]
        return cls(
            report=report,
            measured=measured,
            name=report.known.name,
            tone=tone_of(report),
            source=sources[0] + (f" and {len(sources) - 1} more" if len(sources) > 1 else ""),
            sink=masked_uri(str(report.known.definition.get("sink") or "")),
            owner="" if report.job is None else report.job.owner,
        )

    @property
    def part(self) -> str:
        """The id of the line in the page."""
        return f"feed-{self.name}"

    @property
    def count(self) -> float:
        """How many rows were delivered."""
        return self.report.tally.value(ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The heading of a column; `address` is that of the list in its order."""

    title: str
    is_number: bool
    is_sorted: Literal["ascending", "descending", ""]
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the overview shows. `counts` and what follows are without regard to the filter."""

    rows: Sequence[FeedRow]
    columns: Sequence[Column]
    filter: Filter
    counts: Mapping[str, int]
    """How many changefeeds are in states of each tone; of all of them by the empty tone."""
    rate: float
    worst_lag: float | None
    worst_name: str
    nodes: int
    labels: Mapping[str, str]

    @property
    def nothing(self) -> str:
        """What the table says when it has no line; otherwise empty."""
        if self.rows:
            return ""
        return "No changefeed matches." if self.filter.is_on else "There are no changefeeds in the store yet."


_LABELS = {"": "all", "good": "running", "busy": "changing", "warn": "attention", "bad": "failed", "rest": "ended"}
"""What people call changefeeds in states of a tone; the empty tone is of all."""
_URGENT: Sequence[Tone] = ("bad", "warn", "busy", "good", "rest")
_ORDERS: Mapping[str, Callable[[Report, Measurement], float]] = {
    "state": lambda report, _: _URGENT.index(tone_of(report)),
    "lag": lambda report, _: -(report.behind_s or 0.0),
    "rate": lambda report, measured: -(measured.rows_per_s or 0.0) if report.is_alive else 0.0,
    "rows": lambda report, _: -report.tally.value(ROWS),
    "letters": lambda report, _: -report.dead_letters,
}
"""What changefeeds are ordered by, for the columns that have an id: the greatest first, or the most urgent."""
_COLUMNS = {
    "Name": "name",
    "State": "state",
    "Lag": "lag",
    "Rows/s": "rate",
    "Rows": "rows",
    "Time": "",
    "Source, format, sink": "",
    "Node, owner": "",
    "Dead letters": "letters",
}


def overview(snapshot: Snapshot, nodes: Sequence[NodeRecord], chosen: Filter) -> Overview:
    """Return the overview of *snapshot*."""
    found = [(report, snapshot.measured[report.known.name]) for report in snapshot.reports]
    if chosen.sort in _ORDERS:
        found.sort(key=lambda each: _ORDERS[chosen.sort](*each))
    rows = [FeedRow.of(report, measured) for report, measured in found]
    counts = {tone: sum(row.tone == tone for row in rows) for tone in _LABELS}
    lags = [(report.behind_s, report.known.name) for report in snapshot.reports if report.behind_s is not None]
    worst, name = max(lags, default=(None, ""))
    return Overview(
        rows=[row for row in rows if chosen.admits(row)],
        columns=[_column(title, order, chosen) for title, order in _COLUMNS.items()],
        filter=chosen,
        counts={**counts, "": len(rows)},
        rate=sum(point.rows_per_s or 0.0 for point in snapshot.measured.values()),
        worst_lag=worst,
        worst_name=name,
        nodes=len(nodes),
        labels=_LABELS,
    )


def _column(title: str, order: str, chosen: Filter) -> Column:
    is_number = order not in ("", "name", "state")
    if order != (chosen.sort if chosen.sort in _ORDERS else "name"):
        is_sorted: Literal["ascending", "descending", ""] = ""
    else:
        is_sorted = "descending" if is_number else "ascending"
    address = chosen.address(sort="" if order == "name" else order) if order else ""
    return Column(title=title, is_number=is_number, is_sorted=is_sorted, address=address)
