"""Decoders read what an encoder wrote, for tests, audits and readers of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core.encoder_context import EncoderContext
from cdc_core.rows import TIMESTAMP_TYPE, UNAVAILABLE_TYPE, Op, RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRow:
    """A row as consumers read it. Fields that the envelope does not contain are None.

    Values are those of `RowBatch.column(...).to_pylist()` for the same row, or numbers where Python cannot represent
    the value (infinite dates, 24:00:00, years outside its range); see `plain_value`. `key` has the values of the
    primary key in key order, from any part of the message, unless another column is the key. `key_in_value` and
    `topic_in_value` are what these options add to the value. `after` is None for a delete. In envelope `bare`, it may
    be the key and nulls. It lacks the columns that `unavailable` names, because the source did not know their values.
    `op` is never SCAN.
    """

    key: tuple[Any, ...] | None
    after: Mapping[str, Any] | None
    before: Mapping[str, Any] | None = None
    updated: Timestamp | None = None
    mvcc: Timestamp | None = None
    key_in_value: tuple[Any, ...] | None = None
    topic_in_value: str | None = None
    unavailable: tuple[str, ...] = ()
    op: Op | None = None


class Decoder(ABC):
    """Reads the messages and files of an encoder with the same context. Constructors connect to nothing.

    Values have the types of *schema*. Rows of other versions of the table are read too; columns that *schema* lacks
    have the format's own types. Raises: ValueError if the encoder did not write the bytes.
    """

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    @abstractmethod
    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        """Return the row of a message. A *value* of None is a tombstone."""

    @abstractmethod
    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        """Return the rows of a file's body, in order."""

    def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
        """Return the rows of `file` as a batch, for fast readers. The default converts one row at a time.

        The file must have been written with exactly *schema*, with `updated` and the key. `op` is DELETE for a row that
        the format marks as deleted. For other rows, it is the operation that the format contains, or INSERT if it
        contains none.
        """
        return rows_of(schema, self.file(schema, body))

    @abstractmethod
    def resolved(self, value: bytes | None) -> Timestamp | None:
        """Return the timestamp if *value*, of a message or a file, is a resolved mark; None if it is a row."""


def plain_value(scalar: pa.Scalar) -> Any:
    """Return one value of a `RowBatch`, or the struct of a whole row, in the form of a `DecodedRow`.

    It is `as_py()`, or Arrow's number if Python cannot represent the value.
    """
    if isinstance(scalar, pa.StructScalar):
        return {name: plain_value(scalar[name]) for name in scalar} if scalar.is_valid else None
    if isinstance(scalar, pa.Time64Scalar) and scalar.value == _WHOLE_DAY_US:  # as_py returns 00:00:00
        return scalar.value
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def rows_of(schema: TableSchema, decoded: Sequence[DecodedRow]) -> RowBatch:
    """Return *decoded* rows of one version of a table as a batch, see `Decoder.rows`.

    Raises: ValueError for a row without `updated` or without its key.
    """
    for row in decoded:
        if row.updated is None or row.key is None:
            raise ValueError(f"a row of table {schema.name} in a file has no 'updated' or no key")
    keys = [dict(zip(schema.primary_key, row.key or (), strict=True)) for row in decoded]
    updated = [{"wall": row.updated.wall, "logical": row.updated.logical} for row in decoded if row.updated]
    incomplete = any(row.unavailable for row in decoded)
    return RowBatch.of(
        schema,
        op=pa.array([Op.DELETE if row.after is None else row.op or Op.INSERT for row in decoded], pa.uint8()),
        updated=pa.array(updated, TIMESTAMP_TYPE),
        key=_structs(schema.key_type, keys),
        after=_structs(schema.after_type, [_filled(row) for row in decoded]),
        unavailable=pa.array([row.unavailable or None for row in decoded], UNAVAILABLE_TYPE) if incomplete else None,
    )


def _filled(row: DecodedRow) -> Mapping[str, Any] | None:
    return dict.fromkeys(row.unavailable) | dict(row.after) if row.after and row.unavailable else row.after


def _structs(type_: pa.StructType, values: Sequence[Mapping[str, Any] | None]) -> pa.StructArray:
    columns = [
        pa.array([None if value is None else value[field.name] for value in values], field.type) for field in type_
    ]
    return RowBatch.struct(type_, columns, pa.array([value is None for value in values], pa.bool_()))


_WHOLE_DAY_US = 86_400_000_000
