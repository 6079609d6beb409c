"""The OpenAPI document, made from the endpoints, and the shapes of what is under /v1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.changefeeds.tracing import MAX_CHANGES
from cdc_core.store.job_values import FOLLOWING
from cdc_core.store.verbs import GRANTED
from cdc_core.web.connect.shapes import SHAPES as CONNECT_SHAPES
from cdc_core.web.endpoint import ERROR, TEXT, Answer, Endpoint, Role, Schema, array, choice, record, ref

_V1_SHAPES: dict[str, Schema] = {
    "Event": record(
        "number:integer at event changefeed? node? message? details:object times:integer last_at",
        doc="docs/debugging.md explains each kind of event.",
    ),
    "JobReport": record(
        "name state tables:[string] sink format high_water? behind_s:number? gauges:object gauges_at? retrying:object?"
        " dead_letters:integer epoch:integer job:object",
        state=choice([*FOLLOWING, "retrying"]),
        doc="What `cdc show --json` prints for a job; docs/status.md explains each value.",
    ),
    "Node": record(
        "name node_id state locality? host pid:integer version jobs:[string] max_jobs:integer started expires"
        " owners:[string] address? leads:boolean cores:integer cores_used:integer aggregates:[string] problems:object",
        state=choice(["alive", "draining", "dead"]),
    ),
    "DeadLetter": record("number:integer refused_at? table key updated stage error"),
    "Replayed": record("sent:integer kept missing:integer given_up:integer", kept=array(record("row stage reason"))),
    "Previewed": record("topic key? value? headers:object? decoded:boolean error?"),
    "Trace": record("number:integer table? key:array? rows:integer until active:boolean changes:[TracedChange]"),
    "TracedChange": record(
        "table key:array op updated committed_at position? step:integer stages:object place:object dead_letter?"
        " left_out:boolean complete:boolean",
        doc="docs/trace.md explains each value.",
    ),
    "NewTrace": record(
        "table? key rows timeout",
        key={"type": ["array", "null"], "items": {"type": ["string", "number", "boolean"]}, "minItems": 1},
        rows={"type": "integer", "minimum": 1, "maximum": MAX_CHANGES},
        required=[],
        closed=True,
    ),
    "Reason": record("reason", required=[], closed=True),
    "GiveUp": record("give_up:[integer]", required=[], closed=True),
}

_EVERYWHERE = frozenset({400, 401, 403, 408, 413, 421, 429, 503})
"""Errors of any request: those of access, and of a store that is out of reach for the moment."""
_OF_ROLES = frozenset({401, 403})
"""Those that only a request gets that needs a role."""
_IN_PATHS = {
    "connectors/{name}": ("Name of the connector.", "orders"),
    "tasks/{task}": ("Number of the task: 0.", "0"),
    "connector-plugins/{plugin}": ("Class of the plugin, such as `cdc.Changefeed`.", "cdc.Changefeed"),
    "loggers/{logger}": ("Name of the logger, `root` for all.", "root"),
    "jobs/{name}": ("Name of the job.", "orders"),
    "traces/{number}": ("Number of the trace.", "1"),
    "nodes/{name}": ("Name of the node.", "one"),
}
"""What the parameters in paths are, each with what is before it, and an example."""


def openapi_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of *endpoints*, those without documentation left out."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        if endpoint.answers or endpoint.errors:
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cdc",
            "version": version("cdc-core"),
            "description": "Changefeeds through Kafka Connect's REST interface and, under /v1, everything that Kafka"
            " Connect lacks.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": ERROR, **CONNECT_SHAPES, **_V1_SHAPES},
        },
    }


def openapi_endpoint(endpoints: Iterable[Endpoint]) -> Endpoint:
    """Return the endpoint whose answer documents *endpoints* and itself."""

    def handle(request: Request) -> Response:  # noqa: ARG001
        """This interface as an OpenAPI document."""
        return JSONResponse(document)

    answer = Answer({"type": "object"}, "The document.")
    endpoint = Endpoint(method="GET", path="/openapi.json", role=Role.VIEW, handle=handle, answers=[answer])
    document = openapi_document([*endpoints, endpoint])
    return endpoint


def _described(endpoint: Endpoint) -> Iterator[str]:
    yield f"Requires the role {endpoint.role.name.lower()}." if endpoint.role else "Needs no token."
    granted = GRANTED.get(f"{endpoint.method} {endpoint.path}")
    if granted is not None:
        states = ", ".join(state for state in FOLLOWING if state in granted)
        yield f"Allowed for a job in one of the states {states}."


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    words = re.findall(r"[a-z0-9]+", endpoint.path)
    found: dict[str, Any] = {
        "operationId": "_".join([endpoint.method.lower(), *words]),
        "summary": endpoint.summary,
        "description": " ".join(_described(endpoint)),
        **({} if endpoint.role else {"security": []}),
        "tags": ["v1" if endpoint.path.startswith("/v1") else "connect"],
        "parameters": list(_parameters(endpoint)),
        "responses": {},
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": dict(endpoint.body.schema)}}
        found["requestBody"] = {
            "required": endpoint.body.required,
            "content": content,
            "description": endpoint.body.doc,
        }
    for answer in endpoint.answers:
        found["responses"][str(answer.status)] = _response(answer, endpoint.summary)
    documented = {answer.status for answer in endpoint.answers}
    everywhere = _EVERYWHERE if endpoint.role else _EVERYWHERE - _OF_ROLES
    for status in sorted({*endpoint.errors, *everywhere} - documented):
        headers = {"Retry-After": "After how many seconds to retry."} if status == 429 else {}
        found["responses"][str(status)] = _response(Answer(ref("Error"), headers=headers), HTTPStatus(status).phrase)
    return found


def _parameters(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for before, name in re.findall(r"([\w-]+/){(\w+)}", endpoint.path):
        doc, example = _IN_PATHS[f"{before}{{{name}}}"]
        yield {"name": name, "in": "path", "required": True, "description": doc, "schema": TEXT, "example": example}
    for each in endpoint.parameters:
        yield {"name": each.name, "in": "query", "required": False, "description": each.doc, "schema": each.schema}


def _response(answer: Answer, doc: str) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.doc or doc}
    if answer.schema is not None:
        found["content"] = {answer.media: {"schema": dict(answer.schema)}}
    if answer.headers:
        found["headers"] = {
            name: {"description": doc, "schema": {"type": "string"}} for name, doc in answer.headers.items()
        }
    return found
