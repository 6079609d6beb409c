"""Traces: following changes of a job from their commit to the sink."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.changefeeds.tracing import ROWS, TIMEOUT, shown_change
from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.store.traces import TraceRecord
from cdc_core.watching.trace_keys import checked_key, key_number, written_key
from cdc_core.web.endpoint import Answer, Body, Endpoints, Refusal, Role, array, ref
from cdc_core.web.requests import deployment_of, job_of, json_object

ENDPOINTS = Endpoints()

_MEMBERS = ("table", "key", "rows", "timeout")


@ENDPOINTS.add("GET /v1/jobs/{name}/traces", Role.VIEW, Answer(array(ref("Trace"))), errors=[404])
def traces(request: Request) -> Response:
    """The traces of a job that are active, or are over for at most an hour.

    The first one first, also those of `cdc trace` while that runs.
    """
    return _json(f"[{','.join(map(_text, deployment_of(request).changefeeds.traces(job_of(request))))}]")


@ENDPOINTS.add("GET /v1/jobs/{name}/traces/{number}", Role.VIEW, Answer(ref("Trace")), errors=[404])
def trace(request: Request) -> Response:
    """A trace, with what became of each change until now."""
    return _json(_text(deployment_of(request).changefeeds.trace(job_of(request), request.path_params["number"])))


@ENDPOINTS.add(
    "POST /v1/jobs/{name}/traces",
    Role.OPERATE,
    Answer(ref("Trace"), status=201),
    body=Body(ref("NewTrace"), "Which changes, how many, and for how long.", required=False),
    errors=[400, 404, 409, 415],
)
def begin_trace(request: Request) -> Response:
    """Follow the next changes of a job, a table or a key to the sink.

    Until there are enough or the time is up. Returns at once.
    """
    name, asked = job_of(request), json_object(request, empty=True)
    for member in asked:
        if member not in _MEMBERS:
            raise Refusal(400, f"a trace has no '{member}'{did_you_mean(member, _MEMBERS)}")
    table, timeout = asked.get("table"), asked.get("timeout", TIMEOUT)
    if not isinstance(table, str | None) or table == "":
        raise Refusal(400, "'table' must be the name of a table")
    if not isinstance(timeout, str):
        raise Refusal(400, "'timeout' must be a text such as '2m'")
    key = None if asked.get("key") is None else _key_text(request.state.body)
    changefeeds, rows = deployment_of(request).changefeeds, asked.get("rows", ROWS)
    return _json(_text(changefeeds.ask_trace(name, table=table, key=key, rows=rows, timeout=timeout)), status=201)


@ENDPOINTS.add("DELETE /v1/jobs/{name}/traces/{number}", Role.OPERATE, Answer(None, status=204), errors=[404])
def end_trace(request: Request) -> Response:
    """End a trace and forget what it found."""
    deployment_of(request).changefeeds.end_trace(job_of(request), request.path_params["number"])
    return Response(status_code=204)


def _key_text(body: bytes) -> str:
    """Return the member `key` of the body as it was written, but for spaces: numbers keep all of their digits."""
    try:
        return written_key(json.loads(body, parse_float=key_number)["key"])
    except ValueError as error:
        reason = "'key' must be a list of the values of a key as messages show them, such as [42] or [\"eu\", 7]"
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
