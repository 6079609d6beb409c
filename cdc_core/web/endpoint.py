"""What the server answers: one value for each method of a path, from which routes, roles and documentation are made.

The shapes of JSON in these values are the components of the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

Schema = Mapping[str, Any]
"""A JSON Schema (2020-12), as OpenAPI 3.1 has it. `{"$ref": "#/components/schemas/Name"}` refers to a named shape."""


class Role(IntEnum):
    """What a caller may do. A role may do what the smaller ones may; ANYONE needs no token."""

    ANYONE = 0
    VIEW = 1
    OPERATE = 2
    ADMIN = 3


class Refusal(Exception):  # noqa: N818
    """A request that is not granted: the status of the answer, and why, for people. Raised by a handler.

    With *wait_s*, the same request may be granted after so many seconds, which the header Retry-After says.
    """

    def __init__(self, status: int, message: str, *, wait_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers: Mapping[str, str] = {} if wait_s is None else {"Retry-After": str(wait_s)}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the query of a URL."""

    name: str
    doc: str
    schema: Schema = field(default_factory=lambda: {"type": "string"}, kw_only=True)


@dataclass(frozen=True, slots=True)
class Body:
    """What a request holds: JSON."""

    schema: Schema
    doc: str
    required: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request may be answered with, other than the error body. Without a *schema* the answer is empty.

    Without a *doc*, the summary of the endpoint says what it is. `headers` has what documents them, by their names.
    """

    schema: Schema | None
    doc: str = ""
    status: int = field(default=200, kw_only=True)
    media: str = field(default="application/json", kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)


Handler = Callable[[Request], Response]
Refused = Callable[[Request, int, str], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of a path.

    `path` is Starlette's template, such as `/connectors/{name}/status`; a slash at its end is accepted too. `role` is
    the least one that may call it. `handle` is called in a thread, with `request.state.body` (bytes), `.role` and
    `.user`, and `request.app.state.deployment`. It may raise CdcError or Refusal, which become error bodies.
    `errors` are the statuses of these. `refused` makes the answer of a status and a reason, in place of an error body.
    An endpoint without `answers` and `errors` is not documented in OpenAPI. A GET that is `costly` starts work, such as
    a process: there is no HEAD for it, and browsers may not ask on behalf of a page of another site.
    """

    method: str
    path: str
    role: Role
    handle: Handler
    parameters: Sequence[Parameter] = ()
    body: Body | None = None
    answers: Sequence[Answer] = ()
    errors: Sequence[int] = ()
    refused: Refused | None = None
    costly: bool = False

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handle.__doc__ or "").partition("\n")[0]


class Endpoints(list[Endpoint]):
    """The endpoints of a module, each declared at its handler. All of them have the same *refused*."""

    def __init__(self, *, refused: Refused | None = None) -> None:
        super().__init__()
        self._refused = refused

    def add(self, request: str, role: Role, *answers: Answer, **more: Any) -> Callable[[Handler], Handler]:
        """Return what declares a function to be the handler of *request*, such as `GET /connectors`.

        *more* is as in `Endpoint`.
        """
        method, path = request.split()

        def declare(handle: Handler) -> Handler:
            self.append(
                Endpoint(
                    method=method, path=path, role=role, handle=handle, answers=answers, refused=self._refused, **more
                )
            )
            return handle

        return declare


_FIELD = re.compile(r"(?P<name>\w+)(?::(?P<list>\[?)(?P<type>\w+)]?)?(?P<may_be_null>\??)")
TEXT: Schema = {"type": "string"}
ERROR: Schema = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {
        "error_code": {"type": "integer", "description": "The status of the response."},
        "message": {"type": "string", "description": "What is wrong, where, and the remedy."},
    },
}


def ref(name: str) -> Schema:
    """Return a reference to the named shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": dict(items)}


def nullable(type_: str) -> Schema:
    return {"type": [type_, "null"]}


def choice(texts: Sequence[str]) -> Schema:
    return {"type": "string", "enum": list(texts)}


def by_name(values: Schema) -> Schema:
    """Return an object with any names."""
    return {"type": "object", "additionalProperties": values}


def record(
    fields: str, *, required: Sequence[str] | None = None, closed: bool = False, doc: str = "", **shapes: Schema
) -> dict[str, Any]:
    """Return an object with *fields*, all of them *required* by default.

    Each is a name, with the type of its value unless that is a text: `at number:integer node? tasks:[TaskId]`. A type
    with a capital is the name of a shape, `[…]` is a list, and after `?` the value may be null. What this cannot say is
    in *shapes*, by name.
    """
    properties = {field["name"]: _shape(field) for field in map(_FIELD.fullmatch, fields.split()) if field} | shapes
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        **({"additionalProperties": False} if closed else {}),
        **({"description": doc} if doc else {}),
    }


def _shape(field: re.Match[str]) -> Schema:
    name = field["type"] or "string"
    if field["may_be_null"]:
        return nullable(name)
    one = ref(name) if name[0].isupper() else {"type": name}
    return array(one) if field["list"] else one


def flag_parameter(name: str, doc: str) -> Parameter:
    return Parameter(name, doc, schema=choice(["true", "false"]))


def number_parameter(name: str, doc: str, least: int, most: int) -> Parameter:
    return Parameter(name, doc, schema={"type": "integer", "minimum": least, "maximum": most})
