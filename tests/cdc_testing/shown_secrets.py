"""Which secrets a text or a file shows, plain or encoded as options of Spark are: base64 of a pickle, or of zlib."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from urllib.parse import quote

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}")


def shown_secrets(data: bytes | str, secrets: Collection[str]) -> list[str]:
    """Return those of *secrets* that are in *data*, as they are or quoted as in a URI, also in base64 of anything."""
    layers = list(_layers(data.encode() if isinstance(data, str) else data))
    return [secret for secret in secrets if any(form in layer for form in _forms(secret) for layer in layers)]


def _forms(secret: str) -> set[bytes]:
    return {form.encode() for form in (secret, quote(secret), quote(secret, safe=""))}


def _layers(data: bytes) -> Iterator[bytes]:
    """Yield *data*, and what its base64 holds, also where that is compressed."""
    yield data
    for run in _BASE64.findall(data):
        for start in range(4):  # what is in front of it may look like base64 too
            whole = run[start : start + (len(run) - start) // 4 * 4]
            decoded = base64.b64decode(whole)
            yield from _layers(decoded)
            with suppress(zlib.error):
                yield from _layers(zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(decoded))
