"""The messages in the body of a request, exactly as the encoder wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterator

__all__ = ["messages_of"]

_HEAD = '{"payload":['
_DECODER = json.JSONDecoder()


def messages_of(body: bytes) -> Iterator[tuple[str | None, str | None, bytes]]:
    """Yield topic, key as JSON text, and value of each message. Marks and lines of CSV have neither topic nor key.

    Raises: ValueError when `length` is not the length of `payload`.
    """
    text = body.decode()
    if not text.startswith(_HEAD):
        if text.startswith("{"):
            yield None, None, body
        else:
            yield from ((None, None, line) for line in body.splitlines(keepends=True))
        return
    place, count = len(_HEAD), 0
    while True:
        value, end = _DECODER.raw_decode(text, place)
        meta = value.get("__crdb__", value) if "payload" not in value else value["payload"]
        yield meta.get("topic"), json.dumps(meta.get("key")), text[place:end].encode()
        place, count = end + 1, count + 1
        if text[end] == "]":
            break
    if json.loads(text[: len(_HEAD)] + text[end:])["length"] != count:
        raise ValueError(f"the body has {count} messages, but ends with {text[end:]}")
