"""One request: a body that is the same in every attempt, and what the sink must know about the rows in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cdc_core import TracedRow
from cdc_sink_webhook.event_headers import RequestHeaders

_ID_DIGITS = 32
_ROW_BYTES = 130
_REQUEST_BYTES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """Rows of one topic, or a resolved mark when `row_numbers` is empty.

    `row_numbers` counts the rows since the last flush. `lengths` are the bytes of their messages with separators.
    `keys` are hashes of the rows' keys, valid in this process only.
    """

    id: str
    topic: str
    body: bytes
    row_numbers: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    keys: frozenset[int]
    headers: RequestHeaders = ()
    """Headers that only this request has: the attributes of the event in it."""
    traced: Mapping[int, TracedRow] = field(default_factory=dict)
    """The rows that someone traces, by their numbers."""

    @property
    def header_bytes(self) -> int:
        """How many bytes `headers` take."""
        return sum(len(name) + len(value) for name, value in self.headers)

    @property
    def memory_bytes(self) -> int:
        """How much memory the request takes, estimated."""
        return len(self.body) + self.header_bytes + _ROW_BYTES * len(self.row_numbers) + _REQUEST_BYTES


def request_id(*parts: bytes) -> str:
    """Return a hash of *parts*: the same in every process and attempt, and different for any other parts.

    Two different requests must never have the same id, or an endpoint that drops repeats would drop rows. Therefore an
    id is not made from the slice and a counter: when an attempt repeats a slice, time or the engine may cut its
    requests at other places. Nor is it made from the body alone: without `updated` in the message, two versions of a
    row can look the same. The id is a hash of the changefeed, the topic, the tables, the commit timestamps of the rows,
    and the body before compression. When a later attempt sends the same rows in one request, the id is the same. When
    the rows are cut differently, the request is new, and the endpoint must recognize repeated rows by `updated`.
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:_ID_DIGITS]
