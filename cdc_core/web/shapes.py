"""Shapes of JSON that endpoints share, by name: the components of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_core.web.endpoint import Parameter, Schema

__all__ = ["ERROR", "TEXT", "any_object", "array", "flag_parameter", "nullable", "number_parameter", "record", "ref"]

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


def any_object(doc: str = "") -> Schema:
    return {"type": "object", **({"description": doc} if doc else {})}


def record(
    properties: Mapping[str, Schema], *, required: Sequence[str] | None = None, closed: bool = False
) -> dict[str, Any]:
    """Return an object with *properties*, all of them *required* by default."""
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": list(properties if required is None else required),
        **({"additionalProperties": False} if closed else {}),
    }


def flag_parameter(name: str, doc: str) -> Parameter:
    return Parameter(name, doc, schema={"type": "string", "enum": ["true", "false"]})


def number_parameter(name: str, doc: str, least: int, most: int) -> Parameter:
    return Parameter(name, doc, schema={"type": "integer", "minimum": least, "maximum": most})
