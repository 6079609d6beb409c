"""Jobs with all that the store knows of them, nodes, and what an operator asks of both."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.options import did_you_mean
from cdc_core.store.event_values import KINDS
from cdc_core.store.verbs import UnknownError
from cdc_core.web.endpoint import TEXT, Answer, Body, Endpoints, Parameter, Refusal, Role, array, number_parameter, ref
from cdc_core.web.requests import (
    MAX_ROWS,
    Deployment,
    asked_by,
    deployment_of,
    job_of,
    json_object,
    messages,
    name_of,
    number,
)

ENDPOINTS = Endpoints()

_MAX_EVENTS = 1000
_OF_EVENTS = (
    Parameter("kind", "Only events of this kind. May be repeated.", schema=array(TEXT)),
    number_parameter("after", "Only those with a greater number.", 0, 2**62),
    number_parameter("limit", "At most so many of the latest. Default: 100.", 1, _MAX_EVENTS),
)


@ENDPOINTS.add("GET /v1/jobs", Role.VIEW, Answer(array(ref("JobReport"))))
def jobs(request: Request) -> Response:
    """All jobs, without their histories."""
    found = deployment_of(request).changefeeds.reports()
    return JSONResponse([each.to_json() for each in found if each.job is not None])


@ENDPOINTS.add("GET /v1/jobs/{name}", Role.VIEW, Answer(ref("JobReport")), errors=[404])
def job(request: Request) -> Response:
    """A job with its history."""
    return JSONResponse(deployment_of(request).changefeeds.report(job_of(request)).to_json())


@ENDPOINTS.add(
    "GET /v1/jobs/{name}/events", Role.VIEW, Answer(array(ref("Event"))), parameters=_OF_EVENTS, errors=[400, 404]
)
def job_events(request: Request) -> Response:
    """The latest events of a job, the first one first."""
    return _events(request, job_of(request))


@ENDPOINTS.add("GET /v1/events", Role.VIEW, Answer(array(ref("Event"))), parameters=_OF_EVENTS, errors=[400])
def events(request: Request) -> Response:
    """The latest events of all jobs and nodes, the first one first.

    Those of jobs that are forgotten too.
    """
    return _events(request, None)


@ENDPOINTS.add(
    "POST /v1/jobs/{name}/cancel",
    Role.ADMIN,
    Answer(ref("JobReport"), status=202),
    body=Body(ref("Reason"), "Why, for the history of the job.", required=False),
    errors=[400, 404, 409, 415],
)
def cancel(request: Request) -> Response:
    """End a job for good. It stays listed."""
    changefeeds, name = deployment_of(request).changefeeds, job_of(request, "cancel")
    reason = json_object(request, empty=True).get("reason")
    if reason is not None and (not isinstance(reason, str) or not reason.strip()):
        raise Refusal(400, "'reason' must be a text")
    changefeeds.cancel(name, reason or asked_by(request, "an end"))
    return JSONResponse(changefeeds.report(name).to_json(), status_code=202)


@ENDPOINTS.add(
    "GET /v1/jobs/{name}/preview",
    Role.OPERATE,
    Answer(array(ref("Previewed"))),
    parameters=[number_parameter("rows", "Of so many rows. Default: 20.", 1, MAX_ROWS)],
    errors=[400, 404, 409],
    costly=True,
)
def preview(request: Request) -> Response:
    """The messages that a job would send for rows that its tables hold.

    Sends nothing, saves nothing, and leaves nothing behind.
    """
    rows = number(request, "rows", default=20, least=1, most=MAX_ROWS)
    return JSONResponse([asdict(message) for message in messages(request, rows)])


@ENDPOINTS.add("GET /v1/nodes", Role.VIEW, Answer(array(ref("Node"))))
def nodes(request: Request) -> Response:
    """All nodes, those that died within a day too."""
    return JSONResponse([node.to_json() for node in deployment_of(request).changefeeds.nodes()])


@ENDPOINTS.add("GET /v1/nodes/{name}", Role.VIEW, Answer(ref("Node")), errors=[404])
def node(request: Request) -> Response:
    """A node."""
    return JSONResponse(_node(deployment_of(request), name_of(request)))


@ENDPOINTS.add("POST /v1/nodes/{name}/drain", Role.ADMIN, Answer(ref("Node"), status=202), errors=[404, 409])
def drain(request: Request) -> Response:
    """Have a node hand over its jobs and end."""
    deployment, name = deployment_of(request), name_of(request)
    _node(deployment, name)
    try:
        deployment.changefeeds.drain(name)
    except UnknownError as error:
        raise Refusal(409, str(error)) from error  # it is dead, or has ended meanwhile
    return JSONResponse(_node(deployment, name), status_code=202)


def _node(deployment: Deployment, name: str) -> dict[str, Any]:
    found = [each for each in deployment.changefeeds.nodes() if each.node.name == name]
    if not found:
        raise Refusal(404, f"there is no node '{name}'")
    return found[-1].to_json()


def _events(request: Request, name: str | None) -> Response:
    kinds = request.query_params.getlist("kind")
    for kind in kinds:
        if kind not in KINDS:
            raise Refusal(400, f"there is no kind of event '{kind}'{did_you_mean(kind, KINDS)}")
    after = number(request, "after", default=0, least=0, most=2**62)
    limit = number(request, "limit", default=100, least=1, most=_MAX_EVENTS)
    found = deployment_of(request).changefeeds.events(name, after=after, kinds=kinds, limit=limit)
    return JSONResponse([event.to_json() for event in found])
