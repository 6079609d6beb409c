"""One request: a body that stays the same through all attempts, and what the sink must know of the rows in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Request", "identity"]

_ID_DIGITS = 32
_ROW_BYTES = 130
_REQUEST_BYTES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Rows of one topic, or a resolved mark when there are none.

    `places` are the rows' numbers since the last flush, `lengths` the bytes of their messages with separators; `keys`
    are hashes of the rows' keys, good within this process.
    """

    id: str
    topic: str
    body: bytes
    places: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    keys: frozenset[int]

    @property
    def cost(self) -> int:
        """Bytes of memory that the request takes, about."""
        return len(self.body) + _ROW_BYTES * len(self.places) + _REQUEST_BYTES


def identity(*parts: bytes) -> str:
    """Return the identity of what *parts* say: the same in every process and run, another for anything else.

    It must never be the same for two requests that differ, or an endpoint that drops repeats would drop rows. Therefore
    it is not made of the slice and a number: where a run repeats a slice, its requests may be cut in other places, by
    time or by the engine. Nor of the body alone: two versions of a row may look the same, if `updated` is not in the
    message. So it is a hash of the changefeed, the topic, the commit timestamps of the rows, and the body before
    compression. A request that a later run repeats with the same rows has the same identity; one that is cut in another
    place is a new one, and its rows are repeats that the endpoint must know by `updated`.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:_ID_DIGITS]
