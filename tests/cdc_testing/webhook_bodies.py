"""The messages in the body of a request, exactly as the encoder wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_HEAD = '{"payload":['
_EVENTS = '[{"data"'
_DECODER = json.JSONDecoder()


def messages_of(body: bytes) -> Iterator[tuple[str | None, str | None, bytes]]:
    """Yield topic, key as JSON text, and value of each message. Marks and lines of CSV have neither topic nor key.

    The value of an event of CloudEvents is the whole event, and topic and key are those in its data; an event that is
    alone in its body has neither. Raises: ValueError when `length` is not the length of `payload`.
    """
    text = body.decode()
    if text.startswith(_EVENTS):
        for event, place, end in _elements(text, 1):
            topic, key = event["data"].get("topic"), event["data"].get("key")
            yield topic, None if key is None else json.dumps(key), text[place:end].encode()
        return
    if not text.startswith(_HEAD):
        if text.startswith("{"):
            yield None, None, body
        else:
            yield from ((None, None, line) for line in body.splitlines(keepends=True))
        return
    end, count = len(_HEAD), 0
    for value, place, end in _elements(text, len(_HEAD)):
        meta = value.get("__crdb__", value) if "payload" not in value else value["payload"]
        yield meta.get("topic"), json.dumps(meta.get("key")), text[place:end].encode()
        count += 1
    if json.loads(text[: len(_HEAD)] + text[end:])["length"] != count:
        raise ValueError(f"the body has {count} messages, but ends with {text[end:]}")


def _elements(text: str, place: int) -> Iterator[tuple[Any, int, int]]:
    """Yield each element of the JSON array whose first element is at *place*: itself, where it begins and ends."""
    while True:
        value, end = _DECODER.raw_decode(text, place)
        yield value, place, end
        if text[end] == "]":
            return
        place = end + 1
