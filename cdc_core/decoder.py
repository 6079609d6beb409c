"""Decoders read what an encoder wrote: for conformance tests, audits and small consumers, not for hot paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cdc_core.encoder import EncoderContext
from cdc_core.rows import TIMESTAMP_TYPE, Op, RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["DecodedRow", "Decoder", "plain_value", "rows_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRow:
    """A row as a consumer understands it. What the envelope leaves out is None.

    Values are those that `RowBatch.column(...).to_pylist()` gives for the same row; where Python has no such value
    (infinite dates, 24:00:00, years that it does not count), the number behind it, see `plain_value`. `key` holds the
    primary key's values in key order, whatever part of the message they were read from; `key_in_value` and
    `topic_in_value` are what the options of these names put into the value. `after` is None for a delete, except where
    the envelope shows a delete as a row: in `bare` that may be the key and nulls.
    """

    key: tuple[Any, ...] | None
    after: Mapping[str, Any] | None
    before: Mapping[str, Any] | None = None
    updated: Timestamp | None = None
    mvcc: Timestamp | None = None
    key_in_value: tuple[Any, ...] | None = None
    topic_in_value: str | None = None


class Decoder(ABC):
    """Reads the messages and files of one encoder, built from the same context. Constructors connect to nothing.

    *schema* says what the values mean. Rows of another version of the table are read too: columns that it does not have
    come in the form that the format gives them. Raises: ValueError when the bytes are not the encoder's.
    """

    def __init__(self, context: EncoderContext) -> None:
        self.context = context

    @abstractmethod
    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        """Return the row that one message is about; a *value* of None is a tombstone."""

    @abstractmethod
    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        """Return the rows of a file's body, in order."""

    def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
        """Return the rows of a file's body as a batch: what `file` gives, for readers on hot paths.

        The file was written with exactly *schema*, `updated` and the key in it. `op` is DELETE where the format shows
        a row to be deleted, else what the format tells, INSERT when it tells nothing. This default goes through `file`,
        a row at a time; a decoder that can read columns overrides it.
        """
        return rows_of(schema, self.file(schema, body))

    @abstractmethod
    def resolved(self, value: bytes | None) -> Timestamp | None:
        """Return the timestamp when *value*, of a message or a resolved file, is a resolved mark, None for a row's."""


def plain_value(scalar: pa.Scalar) -> Any:
    """Return one value of a `RowBatch`, or the struct of a whole row, as a `DecodedRow` has it.

    That is `as_py`, except where Python lacks the value; there it is the number that Arrow holds.
    """
    if isinstance(scalar, pa.StructScalar):
        return {name: plain_value(scalar[name]) for name in scalar} if scalar.is_valid else None
    if isinstance(scalar, pa.Time64Scalar) and scalar.value == _WHOLE_DAY_US:  # it would become 00:00:00
        return scalar.value
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def rows_of(schema: TableSchema, decoded: Sequence[DecodedRow]) -> RowBatch:
    """Return *decoded* rows of one version of a table as a batch; see `Decoder.rows`.

    Raises: ValueError for a row without `updated` or without its key.
    """
    for row in decoded:
        if row.updated is None or row.key is None:
            raise ValueError(f"a row of table {schema.name} in a file has no 'updated' or no key")
    keys = [dict(zip(schema.primary_key, row.key or (), strict=True)) for row in decoded]
    updated = [{"wall": row.updated.wall, "logical": row.updated.logical} for row in decoded if row.updated]
    return RowBatch.of(
        schema,
        op=pa.array([Op.DELETE if row.after is None else Op.INSERT for row in decoded], pa.uint8()),
        updated=pa.array(updated, TIMESTAMP_TYPE),
        key=_structs(schema.key_type, keys),
        after=_structs(schema.after_type, [row.after for row in decoded]),
    )


def _structs(type_: pa.StructType, values: Sequence[Mapping[str, Any] | None]) -> pa.StructArray:
    columns = [
        pa.array([None if value is None else value[field.name] for value in values], field.type) for field in type_
    ]
    return RowBatch.struct(type_, columns, pa.array([value is None for value in values], pa.bool_()))


_WHOLE_DAY_US = 86_400_000_000
