"""Repeated writes of one key in one transaction, of which only the last one is a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import Op
from cdc_rangefeed_postgres.fields import Ints, Mask

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def key_codes(columns: Sequence[pa.Array]) -> Ints:
    """Return an integer for each key: equal keys have equal integers, different keys different ones."""
    codes = _codes(columns[0])
    for column in columns[1:]:
        more = _codes(column)
        _, codes = np.unique(codes * (int(more.max(initial=0)) + 1) + more, return_inverse=True)
    return codes


def key_forms(column: pa.Array) -> pa.Array:
    """Return values that are equal where those of a key *column* are one key: 0.0 and -0.0 are two, NaN is one."""
    if not pa.types.is_floating(column.type):
        return column
    one_nan = pc.if_else(pc.is_nan(column), pa.scalar(np.nan, column.type), column)
    return one_nan.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def _codes(column: pa.Array) -> Ints:
    codes: Ints = key_forms(column).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes


@dataclass(frozen=True, slots=True)
class Folded:
    """The rows after folding: of several writes of a key in a transaction only the last one remains."""

    rows: Ints
    """The rows that remain, in rising order."""
    firsts: Ints
    """For each of them, the first write of its key in its transaction, which has `before`."""
    ops: npt.NDArray[np.uint8]
    replaced: Mask
    """Which of them are another row than the one that had the key before the transaction, and is deleted in it."""

    def between(self, start: int, end: int) -> Folded:
        """Return the rows from *start* (inclusive) to *end* (exclusive)."""
        part = slice(*np.searchsorted(self.rows, [start, end]))
        return Folded(self.rows[part], self.firsts[part], self.ops[part], self.replaced[part])


def fold(columns: Sequence[pa.Array], transactions: Ints, ops: npt.NDArray[np.uint8]) -> Folded:
    """Fold rows with the given keys, transactions (rising) and ops."""
    every = np.arange(len(ops))
    unfolded = Folded(every, every, ops, np.zeros(len(ops), np.bool_))
    if len(ops) == 0 or _are_distinct(columns, transactions):
        return unfolded
    codes = key_codes(columns)
    writes = transactions * (int(codes.max()) + 1) + codes
    order = np.argsort(writes, kind="stable")
    changes = writes[order][1:] != writes[order][:-1]
    if changes.all():
        return unfolded
    lasts = order[np.append(changes, True)]
    firsts = order[np.append(True, changes)]
    deleted = np.logical_or.reduceat(ops[order] == Op.DELETE, np.flatnonzero(np.append(True, changes)))
    by_place = np.argsort(lasts)
    lasts, firsts, deleted = lasts[by_place], firsts[by_place], deleted[by_place]
    folded = ops[lasts].copy()
    folded[(folded != Op.DELETE) & (ops[firsts] != Op.INSERT)] = Op.UPDATE
    folded[(folded != Op.DELETE) & (ops[firsts] == Op.INSERT)] = Op.INSERT
    return Folded(lasts, firsts, folded, deleted & (folded == Op.UPDATE))


def _are_distinct(columns: Sequence[pa.Array], transactions: Ints) -> bool:
    """Return True when no key comes twice in a transaction. False means unknown: this check must be fast."""
    if len(transactions) == transactions[-1] - transactions[0] + 1 and (np.diff(transactions) == 1).all():
        return True
    if len(columns) > 1 or not pa.types.is_integer(columns[0].type):
        return False
    hashes = columns[0].to_numpy(zero_copy_only=False).astype(np.uint64) * _MULTIPLIER
    hashes ^= transactions.astype(np.uint64)
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())
