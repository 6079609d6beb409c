"""The versions of rows that count in an audit: the newest of each key at a mark, and those after it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.auditing.layout import KEY_HASHES, Layout, unknown_of, value_of
from cdc_core.timestamp import Timestamp

Bools = npt.NDArray[np.bool_]
_AT_ONCE_BYTES = 64 << 20


def reduced(parts: Iterable[pa.Table], layout: Layout, *, cut: Timestamp | None) -> pa.Table | None:
    """Return the newest version of each key up to *cut*, and all later ones, sorted by key and age; None without any.

    Of versions with the same timestamp the last counts. A value that is not known is that of the version before, as a
    consumer has it. Without *cut*, only the newest version of each key is returned. Memory: the result and a few parts.
    """
    taken: list[pa.Table] = []
    size = base = 0
    for part in parts:
        taken.append(part)
        size += part.nbytes
        if size - base > max(_AT_ONCE_BYTES, base):
            taken = [_reduced(taken, layout, cut)]
            size = base = taken[0].nbytes
    return _reduced(taken, layout, cut) if taken else None


def later(versions: pa.Table, cut: Timestamp) -> Bools:
    """Return which of *versions* are after *cut*."""
    wall, logical = versions.column("wall").to_numpy(), versions.column("logical").to_numpy()
    found: Bools = (wall > cut.wall) | ((wall == cut.wall) & (logical > cut.logical))
    return found


def known(versions: pa.Table, index: int) -> Bools | None:
    """Return where value *index* of the layout is known; None when it is known everywhere."""
    name = unknown_of(index)
    if name not in versions.column_names:
        return None
    unknown = np.asarray(versions.column(name).fill_null(False))
    return None if not unknown.any() else ~unknown


def _reduced(parts: list[pa.Table], layout: Layout, cut: Timestamp | None) -> pa.Table:
    versions = pa.concat_tables(parts, promote_options="default").combine_chunks()
    names = ("sequence", "logical", "wall", *reversed(KEY_HASHES))
    order = np.lexsort([versions.column(name).to_numpy() for name in names])
    versions = versions.take(pa.array(order)).combine_chunks()
    firsts = _firsts(versions)
    versions = _filled(versions, layout, firsts)
    late = np.zeros(len(versions), np.bool_) if cut is None else later(versions, cut)
    newest = np.append(firsts[1:] | late[1:], [True]) & ~late
    return versions.filter(pa.array(newest | late)).combine_chunks()


def _firsts(versions: pa.Table) -> Bools:
    """Return which rows are the first of their key."""
    firsts = np.zeros(len(versions), np.bool_)
    for name in KEY_HASHES:
        hashes = versions.column(name).to_numpy()
        firsts[1:] |= hashes[1:] != hashes[:-1]
    firsts[:1] = True
    return firsts


def _filled(versions: pa.Table, layout: Layout, firsts: Bools) -> pa.Table:
    """Return *versions* with unknown values taken from the newest earlier version of the same row that has them."""
    deleted = np.asarray(versions.column("deleted"))
    for index in range(len(layout.values)):
        there = known(versions, index)
        if there is None:
            continue
        positions = np.arange(len(versions))
        starts = np.maximum.accumulate(np.where(firsts | deleted, positions, 0))
        places = np.maximum.accumulate(np.where(there, positions, -1))
        # Nothing is known of a row from before it was deleted.
        found = (places >= starts) & ~(deleted[places] & ~deleted)
        places = np.where(found, places, positions)
        name, unknown = value_of(index), unknown_of(index)
        values = versions.column(name).take(pa.array(places))
        versions = versions.set_column(versions.column_names.index(name), name, values)
        still = pa.array(~found & ~there)
        versions = versions.set_column(versions.column_names.index(unknown), unknown, still)
    return versions


def same(left: pa.Array, right: pa.Array) -> Bools:
    """Return where two columns have the same value; NULL is the same as NULL, and NaN as NaN."""
    equal = np.asarray(pc.fill_null(pc.equal(left, right), pa.scalar(value=False)))
    equal |= np.asarray(left.is_null()) & np.asarray(right.is_null())
    if pa.types.is_floating(left.type):
        equal |= np.asarray(pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), pa.scalar(value=False)))
    return equal
