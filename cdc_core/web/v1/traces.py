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
from cdc_core.web.deployment import deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import job_of, json_object

__all__ = ["begin_trace", "end_trace", "trace", "traces"]

_MEMBERS = ("table", "key", "rows", "timeout")


def traces(request: Request) -> Response:
    """Return the traces of a job, the first one first, also those of `cdc trace` while that runs."""
    return _json(f"[{','.join(map(_text, deployment_of(request).changefeeds.traces(job_of(request))))}]")


def trace(request: Request) -> Response:
    return _json(_text(deployment_of(request).changefeeds.trace(job_of(request), request.path_params["number"])))


def begin_trace(request: Request) -> Response:
    """Begin to follow the next changes, until there are enough or the time is up. Returns at once."""
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


def end_trace(request: Request) -> Response:
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
