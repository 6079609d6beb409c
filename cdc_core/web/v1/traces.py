"""Traces: following changes of a job from their commit to the sink."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cdc_core.errors import ConfigError
from cdc_core.option_values import read_duration
from cdc_core.options import did_you_mean, format_duration
from cdc_core.store.progress import ProgressStore
from cdc_core.store.traces import TraceRecord
from cdc_core.watching.trace import MAX_CHANGES, MAX_TRACE_S, shown_change, traced_table
from cdc_core.watching.trace_keys import checked_key, key_number, written_key
from cdc_core.web.deployment import Deployment, deployment_of
from cdc_core.web.endpoint import Refusal
from cdc_core.web.requests import json_object, name_of

__all__ = ["begin_trace", "begun", "end_trace", "found_trace", "trace", "traces"]

_MEMBERS = ("table", "key", "rows", "timeout")
_ROWS = 10
_TIMEOUT = "2m"


def traces(request: Request) -> Response:
    """Return the traces of a job, the first one first, also those of `cdc trace` while that runs."""
    return _json(f"[{','.join(map(_text, _store_of(request).traces.of(name_of(request))))}]")


def trace(request: Request) -> Response:
    return _json(_text(_found(request)))


def begin_trace(request: Request) -> Response:
    """Begin to follow the next changes, until there are enough or the time is up. Returns at once."""
    store, asked = _store_of(request), json_object(request, empty=True)
    for member in asked:
        if member not in _MEMBERS:
            raise Refusal(400, f"a trace has no '{member}'{did_you_mean(member, _MEMBERS)}")
    table, timeout = asked.get("table"), asked.get("timeout", _TIMEOUT)
    if not isinstance(table, str | None) or table == "":
        raise Refusal(400, "'table' must be the name of a table")
    if not isinstance(timeout, str):
        raise Refusal(400, "'timeout' must be a text such as '2m'")
    key = None if asked.get("key") is None else _key_text(request.state.body)
    name, rows = name_of(request), asked.get("rows", _ROWS)
    number = begun(store, name, table=table, key=key, rows=rows, timeout=timeout)
    return _json(_text(found_trace(store, name, str(number))), status=201)


def end_trace(request: Request) -> Response:
    _store_of(request).traces.end(_found(request).number)
    return Response(status_code=204)


def begun(
    store: ProgressStore, name: str, *, table: str | None, key: str | None, rows: Any = _ROWS, timeout: str = _TIMEOUT
) -> int:
    """Have changes of changefeed *name* followed, and return the number of the trace.

    *key* is a JSON array of the values of a key of *table*. Raises: Refusal.
    """
    if key is not None and table is None:
        raise Refusal(400, "'key' is a key of one table; name it by 'table'")
    if type(rows) is not int or not 1 <= rows <= MAX_CHANGES:
        raise Refusal(400, f"'rows' must be a whole number from 1 to {MAX_CHANGES}")
    try:
        seconds = float(read_duration(timeout))
        found = traced_table(store, name, table)
    except ValueError as error:  # a ConfigError is one
        raise Refusal(400, str(error) if isinstance(error, ConfigError) else f"'timeout' {error}") from error
    if not 0 < seconds <= MAX_TRACE_S:
        raise Refusal(400, f"'timeout' must be more than 0s and at most {format_duration(MAX_TRACE_S)}")
    try:
        return store.traces.ask(name, table=found, key=key, most=rows, seconds=seconds)
    except ConfigError as error:
        raise Refusal(409, str(error)) from error


def found_trace(store: ProgressStore, name: str, number: str) -> TraceRecord:
    """Return the trace of changefeed *name* with *number*, as it is in a path. Raises: Refusal."""
    found = next((each for each in store.traces.of(name) if str(each.number) == number), None)
    if found is None:
        raise Refusal(404, f"'{name}' has no such trace; those that are over are forgotten after an hour")
    return found


def _key_text(body: bytes) -> str:
    """Return the member `key` of the body as it was written, but for spaces: numbers keep all of their digits."""
    try:
        return written_key(json.loads(body, parse_float=key_number)["key"])
    except ValueError as error:
        reason = "'key' must be a list of the values of a key as messages show them, such as [42] or [\"eu\", 7]"
        raise Refusal(400, reason) from error


def _store_of(request: Request) -> ProgressStore:
    """Return the store if it has the job. Raises: Refusal."""
    deployment: Deployment = deployment_of(request)
    if deployment.store.jobs.find(name_of(request)) is None:
        raise Refusal(404, f"there is no job '{name_of(request)}'")
    return deployment.store


def _found(request: Request) -> TraceRecord:
    return found_trace(_store_of(request), name_of(request), str(request.path_params["number"]))


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
