"""The OpenAPI document, made from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.store.job_values import FOLLOWING
from cdc_core.store.verbs import GRANTED
from cdc_core.web.connect.shapes import SHAPES as CONNECT_SHAPES
from cdc_core.web.endpoint import Answer, Endpoint, Parameter, Role
from cdc_core.web.shapes import ERROR, any_object, ref
from cdc_core.web.v1.shapes import SHAPES as V1_SHAPES

__all__ = ["openapi_document", "openapi_endpoint"]

_EVERYWHERE = frozenset({400, 401, 403, 408, 413, 421, 429, 503})
"""Errors of any request: those of access, and of a store that is out of reach for the moment."""
_OF_ROLES = frozenset({401, 403})
"""Those that only a request gets that needs a role."""


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
            "description": "Changefeeds in the dialect of Kafka Connect, and under /v1 what it has no words for.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": ERROR, **CONNECT_SHAPES, **V1_SHAPES},
        },
    }


def openapi_endpoint(endpoints: Iterable[Endpoint]) -> Endpoint:
    """Return the endpoint whose answer documents *endpoints* and itself."""

    def handle(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse(document)

    endpoint = Endpoint(
        method="GET",
        path="/openapi.json",
        role=Role.VIEW,
        handle=handle,
        summary="This interface as an OpenAPI document.",
        answers=[Answer(status=200, doc="The document.", schema=any_object())],
    )
    document = openapi_document([*endpoints, endpoint])
    return endpoint


def _described(endpoint: Endpoint) -> Iterator[str]:
    yield f"Takes the role {endpoint.role.name.lower()}." if endpoint.role else "Needs no token."
    granted = GRANTED.get(f"{endpoint.method} {endpoint.path}")
    if granted is not None:
        states = ", ".join(state for state in FOLLOWING if state in granted)
        yield f"Granted for a job that is in one of the states {states}."


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    words = re.findall(r"[a-z0-9]+", endpoint.path)
    found: dict[str, Any] = {
        "operationId": "_".join([endpoint.method.lower(), *words]),
        "summary": endpoint.summary,
        "description": " ".join(_described(endpoint)),
        **({} if endpoint.role else {"security": []}),
        "tags": ["v1" if endpoint.path.startswith("/v1") else "connect"],
        "parameters": [_parameter(each) for each in endpoint.parameters],
        "responses": {},
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": dict(endpoint.body.schema)}}
        found["requestBody"] = {
            "required": endpoint.body.required,
            "content": content,
            **({"description": endpoint.body.doc} if endpoint.body.doc else {}),
        }
    for answer in endpoint.answers:
        found["responses"][str(answer.status)] = _response(answer)
    documented = {answer.status for answer in endpoint.answers}
    everywhere = _EVERYWHERE if endpoint.role else _EVERYWHERE - _OF_ROLES
    for status in sorted({*endpoint.errors, *everywhere} - documented):
        phrase = HTTPStatus(status).phrase
        headers = {"Retry-After": "After how many seconds to ask again."} if status == 429 else {}
        found["responses"][str(status)] = _response(
            Answer(status=status, doc=phrase, schema=ref("Error"), headers=headers)
        )
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.doc,
        "schema": dict(parameter.schema),
        **({"example": parameter.example} if parameter.example else {}),
    }


def _response(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.doc}
    if answer.schema is not None:
        found["content"] = {answer.media: {"schema": dict(answer.schema)}}
    if answer.headers:
        found["headers"] = {
            name: {"description": doc, "schema": {"type": "string"}} for name, doc in answer.headers.items()
        }
    return found
