"""What an answer of Kafka Connect's dialect looks like, without what differs from connector to connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

_OPAQUE = (".partition", ".offset")
"""Objects in which a connector may write what it likes."""
_BY_NAME = (".config", "/config", "/admin/loggers", "/topics", "?expand")
"""Objects whose fields are names of something, by the end of their place or of the request."""
_TOLD = (".state", ".error_code")
"""Fields whose values are compared."""
_WORDS = 28
"""How many characters of a message are compared: clients know messages by their beginnings."""
_NONE = "none"


def seen(answer: httpx2.Response, *, base: str) -> dict[str, str]:
    """Return status, headers, fields and types of *answer* of the server at *base*, by what they are called."""
    found = {"status": str(answer.status_code)}
    for name in ("Content-Type", "Location", "Allow"):
        if name in answer.headers:
            found[name] = ", ".join(sorted(answer.headers[name].removeprefix(base).replace(" ", "").split(",")))
    if not answer.content:
        return {**found, "body": "empty"}
    try:
        body = answer.json()
    except ValueError:
        return {**found, "body": "text"}
    types: dict[str, set[str]] = {}
    asked = answer.request.url.path + ("?expand" if "expand" in answer.request.url.params else "")
    by_name = answer.request.method == "GET" and answer.status_code == 200 and asked.endswith(_BY_NAME)
    for path, kind in _fields(body, "body", by_name=by_name):
        types.setdefault(path, set()).add(kind)
    return found | {path: " or ".join(sorted(kinds)) for path, kinds in types.items()}


def _fields(value: Any, path: str, *, by_name: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        yield path, "object"
        if path.endswith(_OPAQUE):
            return
        for name, inner in value.items():
            place = f"{path}.{'*' if by_name else name}"
            yield from _fields(inner, place, by_name=place.endswith(".config"))
    elif isinstance(value, list):
        yield path, "list" if value else "empty list"
        for inner in value:
            yield from _fields(inner, f"{path}[]", by_name=False)
    elif path.endswith(_TOLD):
        yield path, str(value)
    elif path == "body.message":
        yield path, f"{str(value)[:_WORDS]} …"
    else:
        yield path, {type(None): "null", bool: "boolean", str: "text"}.get(type(value), "number")


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each place in which two answers differ, with what is there. With another status nothing else is compared.

    A field may have fewer types than theirs. Of a list that is empty in one of them, the items are not compared.
    """
    if theirs["status"] != ours["status"]:
        yield "status", theirs["status"], ours["status"]
        return
    for place in sorted(theirs.keys() | ours.keys()):
        there, here = theirs.get(place, _NONE), ours.get(place, _NONE)
        owner = place.rpartition("[]")[0]
        if owner and theirs.get(owner) != ours.get(owner):
            continue
        if there == here or (place != "Allow" and set(here.split(" or ")) <= set(there.split(" or "))):
            continue
        yield place, there, here
