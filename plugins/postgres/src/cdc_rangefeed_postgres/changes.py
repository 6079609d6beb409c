"""The changes of one table version in an array of messages, by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import START_OVER, Op, TerminalRangefeedError
from cdc_rangefeed_postgres.columns import ColumnReader, column_readers
from cdc_rangefeed_postgres.fields import Fields, Ints, Mask, Messages, walk
from cdc_rangefeed_postgres.keys import key_forms
from cdc_rangefeed_postgres.names import quoted_table
from cdc_rangefeed_postgres.types import TableVersion

NONE = -1
"""The index of a tuple that does not exist."""
_INSERT, _DELETE = ord("I"), ord("D")
_KEY, _OLD = ord("K"), ord("O")
_TUPLE_AT = 6
"""Offset of the first tuple of a change: after the kind, the relation id and the marker of the tuple."""


class Tuples:
    """New or old tuples of changes. A column is decoded on first use."""

    def __init__(self, fields: Sequence[Fields], readers: Sequence[ColumnReader]) -> None:
        self.fields = fields
        self._readers = readers
        self._columns: dict[int, pa.Array] = {}
        self.unchanged: dict[int, Mask] = {
            index: field.unchanged for index, field in enumerate(fields) if field.unchanged is not None
        }
        """By column: the tuples with an unchanged TOAST value that is not filled yet, and is null until then."""

    def __len__(self) -> int:
        return len(self.fields[0])

    def column(self, index: int) -> pa.Array:
        if index not in self._columns:
            self._columns[index] = self._readers[index].from_fields(self.fields[index])
        return self._columns[index]

    def fill(self, index: int, values: pa.Array, *, into: Ints) -> None:
        """Fill the unchanged values of a column in the tuples *into* with *values*."""
        sources = np.arange(len(self))
        sources[into] = len(self) + np.arange(len(into))
        self._columns[index] = pa.concat_arrays([self.column(index), values]).take(pa.array(sources))
        left = self.unchanged[index].copy()
        left[into] = False
        if left.any():
            self.unchanged[index] = left
        else:
            del self.unchanged[index]


@dataclass(slots=True)
class Changes:
    """Rows in log order. A change of the key is two rows: a delete of the old key and an insert of the new key."""

    version: TableVersion
    new: Tuples
    old: Tuples
    messages: Ints
    """For each row, its message."""
    ops: npt.NDArray[np.uint8]
    after: Ints
    """For each row, its new tuple."""
    before: Ints
    """For each row, its old tuple in the log, which may have the key only."""
    keys: tuple[pa.Array, ...]
    """The key columns, in key order."""
    whole: bool
    """Whether the old tuple of each update and delete is in the log, with all columns."""


def read_changes(messages: Messages, version: TableVersion, indices: Ints, *, diff: bool) -> Changes:
    """Return the changes at *indices* of *messages*, which all have the same *version*.

    Raises: TerminalRangefeedError when *diff* needs old rows and the log has only their keys.
    """
    starts, kinds = messages.starts[indices], messages.kinds[indices]
    markers = messages.bytes[starts + (_TUPLE_AT - 1)]
    has_old = (kinds != _INSERT) & ((markers == _OLD) | (markers == _KEY))
    whole = not ((kinds != _INSERT) & (markers != _OLD)).any()
    if diff and not whole:
        name = version.schema.name
        raise TerminalRangefeedError(
            f"table {name}: the log does not have the old rows, which option 'diff' and cdc_prev in a"
            f" query need. Run ALTER TABLE {quoted_table(name.schema, name.table)} REPLICA IDENTITY FULL. {START_OVER}"
        )
    readers, count = column_readers(version), len(version.columns)
    positions = starts + _TUPLE_AT
    old_fields, old_ends = walk(messages, positions[has_old], count)
    positions[has_old] = old_ends + 1
    has_new = kinds != _DELETE
    new_fields, _ = walk(messages, positions[has_new], count)
    new, old = Tuples(new_fields, readers), Tuples(old_fields, readers)
    new_of, old_of = _numbered(has_new), _numbered(has_old)

    updated = np.flatnonzero(has_new & has_old)
    for index in list(new.unchanged):
        _fill_from_old(new, old, index, new_of[updated], old_of[updated])
    names = [column.name for column in version.columns]
    key = [names.index(name) for name in version.schema.primary_key]
    moved = np.zeros(len(indices), np.bool_)
    for index in key:
        if len(updated):
            left, right = old.column(index).take(old_of[updated]), new.column(index).take(new_of[updated])
            moved[updated] |= pc.not_equal(key_forms(left), key_forms(right)).to_numpy(zero_copy_only=False)

    each = np.repeat(np.arange(len(indices)), 1 + moved)
    second = np.append(False, each[1:] == each[:-1])
    gone = ~has_new[each] | (moved[each] & ~second)
    ops = np.where(gone, Op.DELETE, np.where(second | (kinds[each] == _INSERT), Op.INSERT, Op.UPDATE)).astype(np.uint8)
    keys = tuple(new.column(index) for index in key)
    if gone.any():
        place = pa.array(np.where(gone, len(new) + old_of[each], new_of[each]))
        keys = tuple(
            pa.concat_arrays([column, old.column(index)]).take(place) for index, column in zip(key, keys, strict=True)
        )
    return Changes(
        version=version,
        new=new,
        old=old,
        messages=indices[each],
        ops=ops,
        after=np.where(gone, NONE, new_of[each]),
        before=np.where(ops == Op.INSERT, NONE, old_of[each]),
        keys=keys,
        whole=whole,
    )


def _numbered(there: Mask) -> Ints:
    return np.where(there, np.cumsum(there) - 1, NONE)


def _fill_from_old(new: Tuples, old: Tuples, index: int, new_of: Ints, old_of: Ints) -> None:
    """Fill the unchanged values of a column from old tuples. An old tuple with the key only has null there."""
    null = old.fields[index].null
    known = new.unchanged[index][new_of]
    if null is not None:
        known &= ~null[old_of]
    if known.any():
        new.fill(index, old.column(index).take(pa.array(old_of[known])), into=new_of[known])
