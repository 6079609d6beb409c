"""Jobs with all that the store knows of them, nodes, and what an operator asks of both."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.options import did_you_mean
from cdc_core.store.event_values import KINDS
from cdc_core.store.verbs import UnknownError
from cdc_core.web.deployment import Deployment, deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import asked_by, job_of, json_object, name_of, number

__all__ = ["cancel", "drain", "events", "job", "job_events", "jobs", "node", "nodes"]

_MAX_EVENTS = 1000


def jobs(request: Request) -> Response:
    """Return a report of every job, also of those that have ended, without its history."""
    found = deployment_of(request).changefeeds.reports()
    return JSONResponse([each.to_json() for each in found if each.job is not None])


def job(request: Request) -> Response:
    return JSONResponse(deployment_of(request).changefeeds.report(job_of(request)).to_json())


def job_events(request: Request) -> Response:
    """Return the events of a job, the first one first."""
    return _events(request, job_of(request))


def events(request: Request) -> Response:
    """Return the events of all jobs and nodes, the first one first, those of jobs that are forgotten too."""
    return _events(request, None)


def cancel(request: Request) -> Response:
    """End a job for good. Unlike a deleted connector, it is still listed under /v1."""
    changefeeds, name = deployment_of(request).changefeeds, job_of(request)
    reason = json_object(request, empty=True).get("reason")
    if reason is not None and (not isinstance(reason, str) or not reason.strip()):
        raise Refusal(400, "'reason' must be a text")
    changefeeds.cancel(name, reason or asked_by(request, "an end"))
    return JSONResponse(changefeeds.report(name).to_json(), status_code=202)


def nodes(request: Request) -> Response:
    """Return every node, those that died within a day too."""
    return JSONResponse(deployment_of(request).changefeeds.nodes())


def node(request: Request) -> Response:
    return JSONResponse(_node(deployment_of(request), name_of(request)))


def drain(request: Request) -> Response:
    """Have a node finish the running steps of its jobs, hand them over, and end."""
    deployment, name = deployment_of(request), name_of(request)
    _node(deployment, name)
    try:
        deployment.changefeeds.drain(name)
    except UnknownError as error:
        raise Refusal(409, str(error)) from error  # it is dead, or has ended meanwhile
    return JSONResponse(_node(deployment, name), status_code=202)


def _node(deployment: Deployment, name: str) -> dict[str, Any]:
    found = [each for each in deployment.changefeeds.nodes() if each["name"] == name]
    if not found:
        raise Refusal(404, f"there is no node '{name}'")
    return found[-1]


def _events(request: Request, name: str | None) -> Response:
    kinds = request.query_params.getlist("kind")
    for kind in kinds:
        if kind not in KINDS:
            raise Refusal(400, f"there is no kind of event '{kind}'{did_you_mean(kind, KINDS)}")
    after = number(request, "after", default=0, least=0, most=2**62)
    limit = number(request, "limit", default=100, least=1, most=_MAX_EVENTS)
    found = deployment_of(request).changefeeds.events(name, after=after, kinds=kinds, limit=limit)
    return JSONResponse([event.to_json() for event in found])
