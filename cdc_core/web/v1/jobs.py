"""Jobs with all that the store knows of them, nodes, dead letters, traces, and what an operator asks of each."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.changefeeds.tracing import ROWS, TIMEOUT, checked_key, key_number, shown_change, written_key
from cdc_core.errors import CdcError, ConfigError, FencedError
from cdc_core.options import did_you_mean
from cdc_core.store.event_values import KINDS
from cdc_core.store.traces import TraceRecord
from cdc_core.store.values import DeadLetter
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
    Parameter("kind", "Return only events of this kind. May be repeated.", schema=array(TEXT)),
    number_parameter("after", "Return the next events after the one with this number.", 0, 2**62),
    number_parameter("limit", "Return at most this many events. Default: 100.", 1, _MAX_EVENTS),
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
    """The latest events of a job, or those after a given event, oldest first."""
    return _events(request, job_of(request))


@ENDPOINTS.add("GET /v1/events", Role.VIEW, Answer(array(ref("Event"))), parameters=_OF_EVENTS, errors=[400])
def events(request: Request) -> Response:
    """The latest events of all jobs and nodes, or those after a given event, oldest first.

    Those of jobs that are forgotten too.
    """
    return _events(request, None)


@ENDPOINTS.add(
    "POST /v1/jobs/{name}/cancel",
    Role.ADMIN,
    Answer(ref("JobReport"), status=202),
    body=Body(ref("Reason"), "Reason, for the history of the job.", required=False),
    errors=[400, 404, 409, 415],
)
def cancel(request: Request) -> Response:
    """Cancel a job for good. The job stays listed."""
    changefeeds, name = deployment_of(request).changefeeds, job_of(request, "cancel")
    reason = json_object(request, ["reason"], empty=True).get("reason")
    if reason is not None and (not isinstance(reason, str) or not reason.strip()):
        raise Refusal(400, "'reason' must be a string")
    changefeeds.cancel(name, reason or asked_by(request, "cancellation"))
    return JSONResponse(changefeeds.report(name).to_json(), status_code=202)


@ENDPOINTS.add(
    "GET /v1/jobs/{name}/preview",
    Role.OPERATE,
    Answer(array(ref("Previewed"))),
    parameters=[number_parameter("rows", "Number of rows. Default: 20.", 1, MAX_ROWS)],
    errors=[400, 404, 409],
    costly=True,
)
def preview(request: Request) -> Response:
    """The messages that a job would send for existing rows of its tables.

    Sends nothing, saves nothing, and leaves nothing behind.
    """
    rows = number(request, "rows", default=20, least=1, most=MAX_ROWS)
    return JSONResponse([asdict(message) for message in messages(request, rows)])


@ENDPOINTS.add("GET /v1/nodes", Role.VIEW, Answer(array(ref("Node"))))
def nodes(request: Request) -> Response:
    """All nodes, including those that died within the last day."""
    return JSONResponse([node.to_json() for node in deployment_of(request).changefeeds.nodes()])


@ENDPOINTS.add("GET /v1/nodes/{name}", Role.VIEW, Answer(ref("Node")), errors=[404])
def node(request: Request) -> Response:
    """A node."""
    return JSONResponse(_node(deployment_of(request), name_of(request)))


@ENDPOINTS.add("POST /v1/nodes/{name}/drain", Role.ADMIN, Answer(ref("Node"), status=202), errors=[404, 409])
def drain(request: Request) -> Response:
    """Drain a node: other nodes take over its jobs, and it ends."""
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
            raise Refusal(400, f"unknown event kind '{kind}'{did_you_mean(kind, KINDS)}")
    after = number(request, "after", default=0, least=0, most=2**62) if "after" in request.query_params else None
    limit = number(request, "limit", default=100, least=1, most=_MAX_EVENTS)
    found = deployment_of(request).changefeeds.events(name, after=after, kinds=kinds, limit=limit)
    return JSONResponse([event.to_json() for event in found])


_MAX_LETTERS = 1000


@ENDPOINTS.add(
    "GET /v1/jobs/{name}/dead-letters",
    Role.VIEW,
    Answer(array(ref("DeadLetter"))),
    parameters=[
        number_parameter("limit", "Return at most this many dead letters. Default: 100.", 1, _MAX_LETTERS),
        number_parameter("after", "Return only dead letters with a greater number.", 0, 2**62),
    ],
    errors=[400, 404],
)
def dead_letters(request: Request) -> Response:
    """The dead letters that have not been replayed."""
    deployment, name = deployment_of(request), job_of(request)
    limit = number(request, "limit", default=100, least=1, most=_MAX_LETTERS)
    after = number(request, "after", default=0, least=0, most=2**62)
    found = deployment.changefeeds.dead_letters(name, after=after, limit=limit)
    return JSONResponse([_values(letter) for letter in found])


@ENDPOINTS.add(
    "POST /v1/jobs/{name}/dead-letters/replay",
    Role.OPERATE,
    Answer(ref("Replayed")),
    body=Body(ref("GiveUp"), "Numbers of dead letters to discard instead of sending them.", required=False),
    errors=[400, 404, 409, 415],
)
def replay_dead_letters(request: Request) -> Response:
    """Send the dead letters of a paused job to its sink again."""
    deployment, name = deployment_of(request), job_of(request, "replay")
    give_up = json_object(request, ["give_up"], empty=True).get("give_up", [])
    if not isinstance(give_up, list) or not all(type(each) is int and 0 <= each < 2**62 for each in give_up):
        raise Refusal(400, "'give_up' must be a list of numbers of dead letters")
    try:
        found = deployment.changefeeds.replay(name, state_dir=deployment.state_dir, give_up=give_up)
    except FencedError as error:
        raise Refusal(409, str(error)) from error
    except ConfigError:
        raise
    except CdcError as error:
        raise Refusal(409, deployment.masked(f"the dead letters stay: {error}")) from error
    masked = deployment.masked
    kept = [{"row": masked(str(bad)), "stage": bad.stage, "reason": masked(bad.shown_reason)} for bad in found.kept]
    return JSONResponse({"sent": found.sent, "kept": kept, "missing": found.missing, "given_up": found.given_up})


def _values(letter: DeadLetter) -> dict[str, Any]:
    return {
        "number": letter.number,
        "refused_at": None if letter.refused_at is None else letter.refused_at.isoformat(timespec="seconds"),
        "table": letter.table,
        "key": letter.key,
        "updated": str(letter.updated),
        "stage": letter.stage,
        "error": letter.error,
    }


_MEMBERS = ("table", "key", "rows", "timeout")


@ENDPOINTS.add("GET /v1/jobs/{name}/traces", Role.VIEW, Answer(array(ref("Trace"))), errors=[404])
def traces(request: Request) -> Response:
    """The traces of a job that are active, or that ended within the last hour.

    The first one first, also those of `cdc trace` while that runs.
    """
    return _json(f"[{','.join(map(_text, deployment_of(request).changefeeds.traces(job_of(request))))}]")


@ENDPOINTS.add("GET /v1/jobs/{name}/traces/{number}", Role.VIEW, Answer(ref("Trace")), errors=[404])
def trace(request: Request) -> Response:
    """A trace, with the stages that each change has reached so far."""
    return _json(_text(deployment_of(request).changefeeds.trace(job_of(request), request.path_params["number"])))


@ENDPOINTS.add(
    "POST /v1/jobs/{name}/traces",
    Role.OPERATE,
    Answer(ref("Trace"), status=201),
    body=Body(ref("NewTrace"), "Which changes to trace, how many, and for how long.", required=False),
    errors=[400, 404, 409, 415],
)
def begin_trace(request: Request) -> Response:
    """Trace the next changes of a job, a table or a key to the sink.

    Until there are enough or the time is up. Returns at once.
    """
    name, asked = job_of(request), json_object(request, _MEMBERS, empty=True)
    table, timeout = asked.get("table"), asked.get("timeout", TIMEOUT)
    if not isinstance(table, str | None) or table == "":
        raise Refusal(400, "'table' must be the name of a table")
    if not isinstance(timeout, str):
        raise Refusal(400, "'timeout' must be a string such as '2m'")
    key = None if asked.get("key") is None else _key_text(request.state.body)
    changefeeds, rows = deployment_of(request).changefeeds, asked.get("rows", ROWS)
    return _json(_text(changefeeds.ask_trace(name, table=table, key=key, rows=rows, timeout=timeout)), status=201)


@ENDPOINTS.add("DELETE /v1/jobs/{name}/traces/{number}", Role.OPERATE, Answer(None, status=204), errors=[404])
def end_trace(request: Request) -> Response:
    """End a trace and delete what it found."""
    deployment_of(request).changefeeds.end_trace(job_of(request), request.path_params["number"])
    return Response(status_code=204)


def _key_text(body: bytes) -> str:
    """Return the member `key` of the body as it was written, but for spaces: numbers keep all of their digits."""
    try:
        return written_key(json.loads(body, parse_float=key_number)["key"])
    except ValueError as error:
        reason = "'key' must be a list of key values as messages show them, such as [42] or [\"eu\", 7]"
        raise Refusal(400, reason) from error


def _text(record: TraceRecord) -> str:
    """Return the trace as JSON. Its key is the text of the store, as a parsed number would lose digits."""
    first = {"number": record.number, "table": record.table}
    others = {
        "rows": record.most,
        "until": datetime.fromtimestamp(record.expires, UTC).isoformat(timespec="seconds"),
        "active": record.is_active,
        "changes": [shown_change(change) for change in record.found.values()],
    }
    return f'{_dumped(first)[:-1]},"key":{_shown_key(record.key)},{_dumped(others)[1:]}'


def _shown_key(key: str | None) -> str:
    """Return the key of a trace as JSON; null also for one that is none, which an old version has stored."""
    try:
        return "null" if key is None else checked_key(key)
    except ConfigError:
        return "null"


def _dumped(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _json(text: str, *, status: int = 200) -> Response:
    return Response(text, status_code=status, media_type="application/json")
