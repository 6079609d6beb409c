"""What the envelope `enriched` adds: the record `source`, the operation and the time of processing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from cdc_column_texts import integers
from cdc_column_texts.binary import Piece

from cdc_core import SOURCE_MEMBERS, Envelope, RowBatch, SourceFacts, op_texts
from cdc_encoder_avro.strings import string_bytes, string_pieces, timestamp_pieces
from cdc_encoder_avro.varints import long_bytes, longs

_PRESENT, _END = b"\x02", b"\x00"
_TYPES: dict[str, Any] = {"primary_keys": {"type": "array", "items": "string"}, "ts_ns": "long"}
"""The types of fields of the record `source` that are not strings."""


def source_fields(envelope: Envelope) -> list[dict[str, Any]]:
    """Return the fields of the record `source`, in alphabetical order."""
    return [{"name": name, "type": ["null", _TYPES.get(name, "string")], "default": None} for name in _names(envelope)]


def source_pieces(rows: RowBatch, envelope: Envelope, facts: SourceFacts) -> list[Piece]:
    """Return the unions of null and the record `source`."""
    members = facts.members(rows.schema)
    pieces: list[Piece] = [_PRESENT]
    for name in _names(envelope):
        if name == "ts_ns":
            pieces.append(longs(integers(rows.column("updated").field("wall")), branch=1))
        elif name in members:
            pieces.append(_fact(members[name]))
        else:
            pieces += timestamp_pieces(_timestamps(rows, envelope, name))
    return pieces


def op_pieces(rows: RowBatch) -> list[Piece]:
    """Return the unions of null and the operation."""
    return string_pieces(op_texts(rows))


def time_bytes(ts_ns: int) -> bytes:
    """Return the union of null and the time of processing."""
    return _PRESENT + long_bytes(ts_ns)


def _names(envelope: Envelope) -> list[str]:
    return sorted((*SOURCE_MEMBERS, *envelope.source_times))


def _timestamps(rows: RowBatch, envelope: Envelope, name: str) -> pa.StructArray:
    return envelope.column(rows, "updated" if name == "ts_hlc" else name)


def _fact(value: str | list[str]) -> bytes:
    if isinstance(value, str):
        return string_bytes(value, branch=1)
    items = b"".join(string_bytes(item, branch=0)[1:] for item in value)
    return _PRESENT + long_bytes(len(value)) + items + _END
