"""Traces of a changefeed: the form that asks for one, and what became of each change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.options import counted
from cdc_core.store.traced_change import STAGES, TracedChange
from cdc_core.store.traces import TraceRecord
from cdc_core.watching.trace_keys import checked_key
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.errors import error_page
from cdc_core.web.page.rendering import redirect
from cdc_core.web.page.requests import feed_path, form_values, known_name
from cdc_core.web.page.site import site_of
from cdc_core.web.page.texts import UNKNOWN, clock_text

__all__ = ["ENDPOINTS", "STAGES", "TraceView", "TracedRow", "trace_views"]

ENDPOINTS = Endpoints(refused=error_page)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRow:
    """One change. `times` are those of `STAGES`, after its commit."""

    table: str
    key: str
    op: str
    committed: str
    times: Sequence[str]
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A trace: what it is about, whether it goes on, and what it found."""

    number: int
    title: str
    state: str
    is_active: bool
    rows: Sequence[TracedRow]


def trace_views(records: Sequence[TraceRecord]) -> list[TraceView]:
    """Return the traces, the last one first."""
    return [_view(record) for record in reversed(records)]


@ENDPOINTS.add("POST /ui/changefeeds/{name}/traces", Role.OPERATE)
def begin_trace(request: Request) -> Response:
    """Have the changes followed that the form names. Raises: ConfigError."""
    deployment = site_of(request).deployment
    name, fields = known_name(request), form_values(request)
    table, key, rows = (fields.get(field, "").strip() for field in ("table", "key", "rows"))
    deployment.changefeeds.ask_trace(
        name,
        table=table or None,
        key=checked_key(key) if key else None,
        rows=int(rows) if rows.isascii() and rows.isdecimal() and len(rows) < 9 else 0,
    )
    return redirect(f"{feed_path(name)}?done=trace#traces")


@ENDPOINTS.add("POST /ui/changefeeds/{name}/traces/{number}/end", Role.OPERATE)
def end_trace(request: Request) -> Response:
    """Have one trace ended, and what it found forgotten. Raises: UnknownError."""
    deployment = site_of(request).deployment
    name = known_name(request)
    deployment.changefeeds.end_trace(name, request.path_params["number"])
    return redirect(f"{feed_path(name)}?done=end-trace#traces")


def _view(record: TraceRecord) -> TraceView:
    about = "any table" if record.table is None else record.table
    until = f"active until {clock_text(datetime.fromtimestamp(record.expires, UTC))}" if record.is_active else "over"
    return TraceView(
        number=record.number,
        title=f"{about}, next changes" if record.key is None else f"{about} {record.key}",
        state=f"{until}; {len(record.found)} of at most {counted(record.most, 'change')}",
        is_active=record.is_active,
        rows=[_row(change) for change in record.found.values()],
    )


def _row(change: TracedChange) -> TracedRow:
    return TracedRow(
        table=change.table,
        key=change.key,
        op=change.op,
        committed=clock_text(change.updated.to_datetime()),
        times=[f"{change.after_s(stage):+.3f}" if stage in change.moments else UNKNOWN for stage in STAGES],
        outcome=", ".join(_outcome(change)),
    )


def _outcome(change: TracedChange) -> Iterator[str]:
    if change.left_out:
        yield "left out by the query"
    elif change.dead_letter is not None:
        yield f"among the dead letters ({change.dead_letter})"
    yield from (f"{name} {value}" for name, value in change.place.items())
    if not change.complete:
        yield "waits for the next stage"
