"""The pages that only show something, and the streams of server-sent events that keep them up to date."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cdc_core.errors import CdcError
from cdc_core.options import OptionDoc, describe
from cdc_core.plugins.classes import load_options
from cdc_core.plugins.entry_points import Listing
from cdc_core.plugins.host import PluginHost
from cdc_core.store.node_reports import NodeReport
from cdc_core.web.endpoint import Endpoints, Refusal, Role
from cdc_core.web.page.changefeed import EVENTS, LETTERS, ChangefeedView
from cdc_core.web.page.history import INTERVAL_S, Measurement, history_of, measure, moment_of
from cdc_core.web.page.overview import Filter, Overview, overview
from cdc_core.web.page.rendering import error_page, known, page, part
from cdc_core.web.requests import deployment_of, name_of

_TITLES = {"rangefeed": "Sources", "encoder": "Encoders", "sink": "Sinks", "function": "Functions", "": "Unusable"}
_WITH_OPTIONS = ("rangefeed", "encoder", "sink")
_MAX_STREAM_S = 240.0
"""The browser connects again after that, so that one that may not look anymore is turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A page at one moment: its parts as HTML by their ids, and a point of the charts.

    `group` is the part that holds `members`: it is sent whole when other members come or go.
    """

    parts: Mapping[str, str]
    group: Callable[[], str] | None = None
    members: Sequence[str] = ()
    point: Sequence[float | None] | None = None


class _Stream:
    """What one browser has been sent."""

    def __init__(self, read: Callable[[], Frame]) -> None:
        self._read = read
        self._parts: dict[str, str] = {}
        self._members: Sequence[str] | None = None

    def events(self) -> list[str]:
        """Return what the browser lacks, as events."""
        try:
            frame = self._read()
        except (CdcError, Refusal) as error:
            return self._changed({"connection": part("connection.html", problem=str(error))})
        events, changed = [], {**frame.parts, "connection": part("connection.html", problem="")}
        if frame.group is not None and frame.members != self._members:
            for member in frame.members:
                self._parts[member] = changed.pop(member)
            events.append(_event("parts", frame.group()))
            self._members = frame.members
        events += self._changed(changed)
        if frame.point is not None:
            events.append(_event("point", json.dumps(frame.point)))
        return events

    def _changed(self, parts: Mapping[str, str]) -> list[str]:
        new = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        self._parts.update(new)
        return [_event("parts", "\n".join(new.values()))] if new else []


def frames_answer(read: Callable[[], Frame]) -> Response:
    """Return a stream that calls *read*, in a thread, once a second while the browser is connected."""
    answer = StreamingResponse(_stream(read), media_type="text/event-stream")
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


async def _stream(read: Callable[[], Frame]) -> AsyncIterator[str]:
    stream, end = _Stream(read), time.monotonic() + _MAX_STREAM_S
    yield "retry: 2000\n\n"
    while time.monotonic() < end:
        for event in await run_in_threadpool(stream.events):
            yield event
        await asyncio.sleep(INTERVAL_S)
    yield _event("over", "")


def _event(name: str, text: str) -> str:
    data = "\n".join(f"data: {line}" for line in text.splitlines()) or "data:"
    return f"event: {name}\n{data}\n\n"


ENDPOINTS = Endpoints(refused=error_page)

_DONE = {
    "pause": "The changefeed will be paused.",
    "resume": "The changefeed is resumed.",
    "restart": "The changefeed will be restarted.",
    "alter": "The changefeed was altered. If it is running, the change takes effect after the running step.",
    "cancel": "The changefeed will be canceled.",
    "create": "The changefeed is created.",
    "replay": "The dead letters were replayed.",
    "discard": "The dead letter was discarded.",
    "trace": "The next changes will be traced.",
    "end-trace": "The trace was ended and deleted.",
    "drain": "The node will hand over its jobs and stop.",
}
"""What a page says after a form was obeyed, by its parameter `done`."""


@ENDPOINTS.add("GET /ui", Role.VIEW)
def show_overview(request: Request) -> Response:
    return page(request, "overview.html", view=_overview(request), query=request.url.query, done=_done(request))


@ENDPOINTS.add("GET /ui/live", Role.VIEW)
def stream_overview(request: Request) -> Response:
    def read() -> Frame:
        view = _overview(request)
        parts = {row.part: part("feed_row.html", row=row) for row in view.rows}
        return Frame(
            parts={**parts, "totals": part("totals.html", view=view)},
            members=tuple(parts),
            group=lambda: part("feed_rows.html", view=view),
        )

    return frames_answer(read)


@ENDPOINTS.add("GET /ui/changefeeds/{name}", Role.VIEW)
def show_changefeed(request: Request) -> Response:
    view, _ = seen_changefeed(request)
    return page(request, "changefeed.html", view=view, done=_done(request))


@ENDPOINTS.add("GET /ui/changefeeds/{name}/live", Role.VIEW)
def stream_changefeed(request: Request) -> Response:
    may = {"may_operate": request.state.role >= 2, "may_administer": request.state.role >= 3}

    def read() -> Frame:
        view, point = seen_changefeed(request)
        names = ("head", "strip", "readings", "facts", "spans", "events", "letters", "traces")
        return Frame(parts={each: part(f"{each}.html", view=view, **may) for each in names}, point=point.to_json())

    return frames_answer(read)


@ENDPOINTS.add("GET /ui/changefeeds/{name}/points", Role.VIEW)
def the_points(request: Request) -> Response:
    """Return what the charts of a changefeed show, as columns."""
    rows = [point.to_json() for point in history_of(request).points(name_of(request))]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return Response(json.dumps(columns), media_type="application/json")


@ENDPOINTS.add("GET /ui/nodes", Role.VIEW)
def show_nodes(request: Request) -> Response:
    return page(request, "nodes.html", rows=_nodes(request), done=_done(request))


@ENDPOINTS.add("GET /ui/nodes/live", Role.VIEW)
def stream_nodes(request: Request) -> Response:
    may = {"may_administer": request.state.role >= 3}
    return frames_answer(lambda: Frame(parts={"nodes": part("node_rows.html", rows=_nodes(request), **may)}))


@ENDPOINTS.add("GET /ui/plugins", Role.VIEW)
def show_plugins(request: Request) -> Response:
    return page(request, "plugins.html", groups=plugin_groups(deployment_of(request).plugins))


def seen_changefeed(request: Request) -> tuple[ChangefeedView, Measurement]:
    """Return the changefeed as of now, and the newest point of its charts. Raises: Refusal when it is unknown."""
    changefeeds, snapshot = deployment_of(request).changefeeds, history_of(request).snapshot()
    found = changefeeds.report_of(known(request))
    name = found.known.name
    measured = snapshot.measured.get(name) or measure(moment_of(found), None)
    view = ChangefeedView(
        report=found,
        measured=measured,
        letters=changefeeds.dead_letters(name, limit=LETTERS),
        events=changefeeds.events(name, limit=EVENTS),
        traces=list(reversed(changefeeds.traces(name))),
    )
    return view, measured


def _overview(request: Request) -> Overview:
    nodes = deployment_of(request).changefeeds.living_nodes()
    return overview(history_of(request).snapshot(), nodes, _filter_of(request))


def _nodes(request: Request) -> list[NodeReport]:
    return sorted(deployment_of(request).changefeeds.nodes(), key=lambda row: row.state == "dead")


def _filter_of(request: Request) -> Filter:
    given = request.query_params
    return Filter(text=given.get("q", "").strip()[:100], tone=given.get("tone", ""), sort=given.get("sort", ""))


def _done(request: Request) -> str:
    return _DONE.get(request.query_params.get("done", ""), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRow:
    """One component. `problem` is why it cannot be used, or empty."""

    listed: Listing
    problem: str
    options: Sequence[OptionDoc]


def plugin_groups(plugins: PluginHost) -> dict[str, list[PluginRow]]:
    """Return all components by the title of their kind. One whose class of options cannot be loaded has a problem."""
    listing = plugins.listing()
    groups = {
        title: [_row(plugins, listed) for listed in listing if listed.kind == kind] for kind, title in _TITLES.items()
    }
    return {title: rows for title, rows in groups.items() if rows}


def _row(plugins: PluginHost, listed: Listing) -> PluginRow:
    options: Sequence[OptionDoc] = ()
    problem = listed.problem
    if not problem and listed.kind in _WITH_OPTIONS:
        try:
            options = describe(load_options(plugins.component(listed.kind, listed.name)))
        except CdcError as error:
            problem = str(error)
    return PluginRow(listed=listed, problem=problem, options=options)
