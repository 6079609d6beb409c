"""What the endpoints of Kafka Connect's dialect are made of."""

from __future__ import annotations

from typing import Any

from cdc_core.web.connect.shapes import CONFIG_VALUES
from cdc_core.web.endpoint import Answer, Body, Endpoint, Parameter, Role, Schema

__all__ = ["CHECK", "CONFIG", "LOCATION", "answer", "endpoint", "flag", "of_path"]

CHECK = Parameter(
    name="check",
    doc="With `false`, source and sink are not asked whether the definition fits them. Not in Kafka Connect.",
    schema={"type": "string", "enum": ["true", "false"]},
)
CONFIG = Body(schema=CONFIG_VALUES, doc="The whole configuration.")
LOCATION = {"Location": "Where the connector is."}


def of_path(name: str, doc: str, example: str) -> Parameter:
    return Parameter(name=name, place="path", doc=doc, required=True, example=example)


def flag(name: str, doc: str) -> Parameter:
    return Parameter(name=name, doc=doc, schema={"type": "string", "enum": ["true", "false"]})


def answer(doc: str, schema: Schema, *, status: int = 200, **more: Any) -> Answer:
    return Answer(status=status, doc=doc, schema=schema, **more)


def endpoint(method: str, path: str, role: Role, handle: Any, summary: str, *answers: Answer, **more: Any) -> Endpoint:
    return Endpoint(method=method, path=path, role=role, handle=handle, summary=summary, answers=answers, **more)
