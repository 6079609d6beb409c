"""Builds messages of pgoutput, protocol version 1."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
from cdc_rangefeed_postgres.fields import Fields, Messages, walk
from cdc_rangefeed_postgres.types import PgColumn

_EPOCH_US = 946_684_800_000_000


class _Unchanged:
    """An unchanged TOAST value."""


UNCHANGED = _Unchanged()
Value = str | bytes | None | _Unchanged


def begin(lsn: int, *, us: int) -> bytes:
    """The begin of a transaction whose commit record starts at *lsn*, committed *us* microseconds after 1970."""
    return struct.pack(">cqqI", b"B", lsn, us - _EPOCH_US, 7)


def commit() -> bytes:
    return struct.pack(">cBqqq", b"C", 0, 0, 0, 0)


def relation(relid: int, columns: Sequence[PgColumn], *, name: str = "t", identity: str = "d") -> bytes:
    parts = [struct.pack(">cI", b"R", relid), b"public\0", name.encode(), b"\0", identity.encode()]
    parts.append(struct.pack(">H", len(columns)))
    for column in columns:
        parts.append(bytes([column.key]) + column.name.encode() + b"\0" + struct.pack(">Ii", column.oid, column.typmod))
    return b"".join(parts)


def insert(relid: int, *values: Value) -> bytes:
    return struct.pack(">cIc", b"I", relid, b"N") + tuple_(values)


def update(relid: int, *values: Value, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None) -> bytes:
    before = b"K" + tuple_(key) if key is not None else b"O" + tuple_(old) if old is not None else b""
    return struct.pack(">cI", b"U", relid) + before + b"N" + tuple_(values)


def delete(relid: int, *, key: Sequence[Value] | None = None, old: Sequence[Value] | None = None) -> bytes:
    return struct.pack(">cI", b"D", relid) + (b"K" + tuple_(key) if key is not None else b"O" + tuple_(old or ()))


def truncate(*relids: int) -> bytes:
    return struct.pack(f">cIB{len(relids)}I", b"T", len(relids), 0, *relids)


def tuple_(values: Sequence[Value]) -> bytes:
    """A tuple, with str in text form and bytes in binary form."""
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, _Unchanged):
            parts.append(b"u")
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(struct.pack(">cI", b"t" if isinstance(value, str) else b"b", len(data)) + data)
    return b"".join(parts)


def log(*messages: bytes) -> pa.Array:
    return pa.array(messages, pa.binary())


def field_column(values: Sequence[Value]) -> Fields:
    """Return the fields of one column in tuples without gaps, the last one at the end of the buffer."""
    messages = Messages(log(*(tuple_([value]) for value in values)))
    (fields,), _ = walk(messages, messages.starts, 1)
    return fields
