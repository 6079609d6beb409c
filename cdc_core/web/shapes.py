"""Shapes of JSON that endpoints share, by name: the components of the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cdc_core.web.endpoint import Parameter, Schema

_FIELD = re.compile(r"(?P<name>\w+)(?::(?P<list>\[?)(?P<type>\w+)]?)?(?P<may_be_null>\??)")
TEXT: Schema = {"type": "string"}
ERROR: Schema = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {
        "error_code": {"type": "integer", "description": "The status of the answer."},
        "message": {"type": "string", "description": "What is wrong, where, and what helps."},
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


def any_object(doc: str = "") -> Schema:
    return {"type": "object", **({"description": doc} if doc else {})}


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
