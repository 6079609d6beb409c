"""How messages are events in envelope `cloudevents`: what the attributes of CloudEvents 1.0 hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from cdc_core.rows import Op, RowBatch
from cdc_core.schema import TableName
from cdc_core.timestamp import Timestamp

Attributes = Mapping[str, str | pa.Array]
"""Attributes of messages by name: a text that all of them share, or a column of texts without nulls."""
EVENT_TYPE, EVENTS_TYPE = (f"application/cloudevents{batch}+json; charset=UTF-8" for batch in ("", "-batch"))
"""The content types of one event in mode "structured", and of an array of events."""
_OPS = {op: op.name.lower() for op in Op}
_URI = re.compile(r"[!$&-;=@-Z_a-z~%]+")
_VISIBLE = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvents:
    """How the messages of a changefeed become events. Picklable.

    `source` and `type_prefix` begin the attributes `source` and `type`. In mode "structured" the value of a message is
    the event as JSON, and its content type `EVENT_TYPE`. In "binary" the value is the data, and the attributes, in
    `MessageBatch.attributes`, become headers.

    Raises: ValueError, with a sentence, for a source that is not a URI, or a prefix that a header cannot contain
    unchanged.
    """

    source: str
    type_prefix: str = "cdc."
    mode: Literal["structured", "binary"] = "structured"

    def __post_init__(self) -> None:
        if not _URI.fullmatch(self.source):
            raise ValueError(
                f"option 'cloudevents_source' must be a URI without a query or fragment, not '{self.source}'; write a"
                " path such as /shop, or a URL such as https://example.com/shop, and percent-encode other characters"
            )
        if not _VISIBLE.fullmatch(self.type_prefix):
            raise ValueError(
                f"option 'cloudevents_type_prefix' is '{self.type_prefix}', which has characters other than visible"
                " ASCII; write a prefix such as com.example.shop."
            )

    @property
    def binary(self) -> bool:
        return self.mode == "binary"

    def source_of(self, table: TableName) -> str:
        """Return the attribute `source` of the rows of *table*."""
        parts = (table.database, table.schema, table.table)
        return "/".join((self.source.rstrip("/"), *(quote(part, safe="") for part in parts)))

    def types_of(self, rows: RowBatch) -> tuple[pa.Array, pa.Array]:
        """Return what happened to each row, such as `insert`, and the attribute `type`."""
        ops = rows.column("op")
        names = pa.array([None, *_OPS.values()], pa.string())
        types = pa.array([None, *(f"{self.type_prefix}{name}" for name in _OPS.values())], pa.string())
        return names.take(ops), types.take(ops)

    def op_of(self, type_: str) -> Op:
        """Return the `Op` for the attribute `type` of a row; a scanned row counts as inserted. Raises: ValueError."""
        for op, name in _OPS.items():
            if type_ == f"{self.type_prefix}{name}":
                return Op.INSERT if op is Op.SCAN else op
        raise ValueError(f"unknown event type '{type_}'")

    def resolved(self, timestamp: Timestamp) -> dict[str, str]:
        """Return the attributes of a resolved mark: without a subject, and with the source of the whole changefeed."""
        moment = np.datetime_as_string(np.datetime64(timestamp.wall // 1000, "us"))
        return {
            "datacontenttype": "application/json",
            "id": f"{timestamp}:resolved",
            "source": self.source,
            "specversion": "1.0",
            "time": f"{moment}Z",
            "type": f"{self.type_prefix}resolved",
        }


def each_event(attributes: Attributes, count: int) -> Iterator[dict[str, str]]:
    """Yield the attributes of each of *count* messages."""
    columns = [[given] * count if isinstance(given, str) else given.to_pylist() for given in attributes.values()]
    for values in zip(*columns, strict=True):
        yield dict(zip(attributes, values, strict=True))
