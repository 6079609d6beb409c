"""The columns in which both sides of an audit are compared: those of the table's current version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import Column, ColumnType, TableSchema
from cdc_core.unavailable import unavailable_by_column

KEY_HASHES = ("hash1", "hash2")
"""128 bits that stand for the key."""
_SEEDS = (11, 12)

Bools = npt.NDArray[np.bool_]


def key_of(index: int) -> str:
    """Return the name of the column with a part of the key."""
    return f"k{index}"


def value_of(index: int) -> str:
    """Return the name of the column with a value that is not in the key."""
    return f"v{index}"


def unknown_of(index: int) -> str:
    """Return the name of the column that says where a value is not known. It is missing where all are known."""
    return f"u{index}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How versions of the rows of one table are laid out as one Arrow table.

    *schema* is the current version of the table, as it is delivered. `backfills`: whether all rows were delivered again
    when the table got columns with values, so that an older row without a column has NULL there, or when a column got
    another type. Text and bytes have 64-bit offsets: a column of a partition may exceed 2 GB.
    """

    schema: TableSchema
    backfills: bool = True

    @cached_property
    def values(self) -> tuple[Column, ...]:
        """The columns that are not in the key."""
        return tuple(column for column in self.schema.columns if column.name not in self.schema.primary_key)

    def of(self, rows: RowBatch, *, sequence: int) -> pa.Table:
        """Return *rows* in this layout; their sequence numbers begin at *sequence*.

        Raises: ConfigError when *rows* have another key.
        """
        theirs = rows.schema
        if theirs.primary_key != self.schema.primary_key:
            raise ConfigError(
                f"table {self.schema.name} has rows with the key ({', '.join(theirs.primary_key)}) at the "
                f"destination, but its key is now ({', '.join(self.schema.primary_key)}). Rows with different keys "
                "cannot be compared"
            )
        types = [_wide(column.type.arrow) for column in self.schema.key_columns]
        keys = [_cast(array, type_) for array, type_ in zip(rows.column("key").flatten(), types, strict=True)]
        updated = rows.column("updated")
        deleted = np.asarray(pc.equal(rows.column("op"), pa.scalar(Op.DELETE, pa.uint8())))
        deleted |= np.asarray(rows.column("after").is_null())
        columns = {key_of(index): array for index, array in enumerate(keys)}
        columns |= self._values(rows, ~deleted)
        columns |= {
            "wall": updated.field("wall"),
            "logical": updated.field("logical"),
            "sequence": pa.array(np.arange(sequence, sequence + len(rows), dtype=np.int64)),
            "deleted": pa.array(deleted),
        }
        for name, seed in zip(KEY_HASHES, _SEEDS, strict=True):
            columns[name] = pa.array(hashed([_identity(key) for key in keys], rows=len(rows), seed=seed))
        return pa.table(columns)

    def _values(self, rows: RowBatch, present: Bools) -> dict[str, pa.Array]:
        theirs = {column.name: index for index, column in enumerate(rows.schema.columns)}
        arrays, unavailable = rows.column("after").flatten(), unavailable_by_column(rows)
        # A column that is gone may be one that was renamed.
        explained = self.backfills and theirs.keys() <= {column.name for column in self.schema.columns}
        found: dict[str, pa.Array] = {}
        for index, column in enumerate(self.values):
            type_, unknown, array = _wide(column.type.arrow), unavailable.get(column.name), None
            if column.name in theirs and self._converts(rows.schema.column(column.name).type, column.type):
                array = _cast_or_none(arrays[theirs[column.name]], type_)
            if array is None:
                array = pa.nulls(len(rows), type_)
                unknown = None if explained else present
            found[value_of(index)] = array
            if unknown is not None:
                found[unknown_of(index)] = pa.array(unknown & present)
        return found

    def _converts(self, old: ColumnType, new: ColumnType) -> bool:
        """Return whether a value of type *old* is compared as one of type *new*.

        The source has converted it by its own rules. Only a backfill delivers the result.
        """
        return self.backfills or _unlabelled(old) == _unlabelled(new)


def _unlabelled(type_: ColumnType) -> ColumnType:
    """Return *type_* without what may be added to an enum: its values stay as they are."""
    return replace(type_, labels=(), element=None)


def _wide(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string(type_):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(type_) else type_


def _identity(key: pa.Array) -> pa.Array:
    """Return values that are equal where those of a *key* column are encoded alike: 0.0 and -0.0 are two keys."""
    return key.cast(pa.string()) if pa.types.is_floating(key.type) else key


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


def _cast_or_none(array: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return *array* as *type_*, None when older values of the column are of a type without a way there."""
    try:
        return _cast(array, type_)
    except pa.ArrowException:
        return None


Hashes = npt.NDArray[np.uint64]


def hashed(columns: Sequence[pa.Array], *, rows: int, seed: int) -> Hashes:
    """Return one hash for each of the *rows* of *columns*. -0.0 is 0.0, and NaN is itself.

    Equal values of the same Arrow type have equal hashes within this process.
    """
    if not columns:
        return np.zeros(rows, np.uint64)
    frame = pl.from_arrow(pa.table({str(index): _plain(column) for index, column in enumerate(columns)}))
    assert isinstance(frame, pl.DataFrame)
    hashes: Hashes = frame.hash_rows(seed).to_numpy()
    return hashes


def _plain(column: pa.Array) -> pa.Array:
    """Return dates and times as numbers: Polars has neither 24:00:00 nor infinite dates."""
    if pa.types.is_date32(column.type):
        return column.view(pa.int32())
    if pa.types.is_time64(column.type) or pa.types.is_timestamp(column.type):
        return column.view(pa.int64())
    return column
