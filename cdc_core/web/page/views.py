"""The pages that only show something, and the streams that keep them up to date."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.store.job_reports import NodeReport
from cdc_core.web.deployment import deployment_of
from cdc_core.web.endpoint import Endpoints, Role
from cdc_core.web.page.changefeed import EVENTS, LETTERS, ChangefeedView
from cdc_core.web.page.history import history_of
from cdc_core.web.page.live import Frame, frames_answer
from cdc_core.web.page.measurements import Measurement, measure, moment_of
from cdc_core.web.page.overview import Filter, Overview, overview
from cdc_core.web.page.plugin_views import plugin_groups
from cdc_core.web.page.rendering import error_page, page, part
from cdc_core.web.page.requests import known
from cdc_core.web.requests import name_of

ENDPOINTS = Endpoints(refused=error_page)

_DONE = {
    "pause": "It will be paused.",
    "resume": "It is resumed.",
    "restart": "It will be restarted.",
    "alter": "It is altered. If it is running, it takes the change after the running step.",
    "cancel": "It will be cancelled.",
    "create": "It is created.",
    "replay": "The dead letters were replayed.",
    "discard": "The dead letter was discarded.",
    "trace": "The next changes are traced.",
    "end-trace": "The trace is ended and forgotten.",
    "drain": "The node hands over its jobs and ends.",
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
    """Return the nodes, the living ones first."""
    return sorted(deployment_of(request).changefeeds.nodes(), key=lambda row: row.state == "dead")


def _filter_of(request: Request) -> Filter:
    given = request.query_params
    return Filter(text=given.get("q", "").strip()[:100], tone=given.get("tone", ""), sort=given.get("sort", ""))


def _done(request: Request) -> str:
    return _DONE.get(request.query_params.get("done", ""), "")
