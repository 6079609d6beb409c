"""Keys of deferrable constraints, which several rows may have until their transaction ends.

`UPDATE t SET id = id + 1` gives a row the key of the next one before that one gives it up. So the last change of a key
does not say which row remains. The rows themselves do: PostgreSQL changes such tables only with REPLICA IDENTITY FULL,
and then the log has each row that is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_core import Op, TerminalRangefeedError
from cdc_rangefeed_postgres.changes import NONE, Changes
from cdc_rangefeed_postgres.fields import Ints
from cdc_rangefeed_postgres.keys import Folded, key_forms
from cdc_rangefeed_postgres.relations import shape
from cdc_rangefeed_postgres.remedies import READ_ANEW

_EARLIER, _DELIVERED = -1, -2
"""In place of a change: one of an earlier call, and the last one of its key there."""
_ANY = 1 << 64
"""In place of a hash: that of a row which an earlier call compared by other columns."""


@dataclass(slots=True)
class _Key:
    """What one transaction did with the rows of a key."""

    added: list[tuple[int, int]] = field(default_factory=list)
    """The rows that it wrote and has not removed: a hash of each, and the change."""
    removed: list[int] = field(default_factory=list)
    """The changes that removed a row of before the transaction."""
    first: int = _EARLIER
    last: int = _EARLIER
    undone: bool = False
    """Whether the row was removed that an earlier call has delivered."""

    def later(self) -> _Key | int | None:
        """Return this for the next call: for one delivered row its hash, and None when no row is left."""
        rows = [row for row, _ in self.added]
        if len(rows) < 2 and not self.removed:
            return rows[0] if rows else None
        if not rows:
            return None
        added = [*((row, _EARLIER) for row in rows[:-1]), (rows[-1], _DELIVERED)]
        return _Key(added, [_EARLIER] if self.removed else [])

    @classmethod
    def of(cls, earlier: _Key | int | None) -> _Key:
        """Return this from what `later` returned."""
        if earlier is None:
            return cls()
        return earlier if isinstance(earlier, _Key) else cls([(earlier, _DELIVERED)])


class SharedKeys:
    """Finds the row that each key has at the end of a transaction.

    Of a transaction that spans several calls, it holds hashes of all rows that were written and of their keys. A row
    that an earlier call has delivered, and which is removed, is taken for the only one of its key: what such a row had
    replaced is not in the log, nor whether there was anything.
    """

    def __init__(self) -> None:
        self._open: dict[str, dict[int, _Key | int]] = {}
        self._next: dict[str, dict[int, _Key | int]] = {}
        self._compared: dict[str, tuple[object, ...]] = {}
        """By table, the columns by which rows were compared last."""
        self._last = 0

    def begin(self, last: int) -> None:
        """Expect the changes of a call whose last transaction is *last*; 0 is the one that continues."""
        self._open, self._last = self._next, last
        self._next = self._open if last == 0 else {}

    def fold(self, changes: Changes, transactions: Ints, known: int) -> Folded:
        """Return the rows that remain of *changes*, whose rows are compared by the first *known* columns.

        Raises: TerminalRangefeedError when that depends on a row of an earlier call.
        """
        table = changes.version.schema.name
        earlier = self._open.get(table.qualified, {})
        following = self._next.setdefault(table.qualified, {})
        pairs = [(_values(changes.new.column(index)), _values(changes.old.column(index))) for index in range(known)]
        readable = [index for index, pair in enumerate(pairs) if None not in pair]
        added = _hashes([pairs[index][0] or [] for index in readable], len(changes.new))
        removed = _hashes([pairs[index][1] or [] for index in readable], len(changes.old))
        compared = tuple(shape(changes.version.columns)[index] for index in readable)
        if self._compared.get(table.qualified) != compared:
            self._compared[table.qualified] = compared
            for number, known_key in earlier.items():
                each = _Key.of(known_key)
                earlier[number] = _Key([(_ANY, change) for _, change in each.added], each.removed)
        keys: dict[tuple[int, int], _Key] = {}
        rows = zip(
            transactions.tolist(),
            _hashes([_values(column) or [] for column in changes.keys], len(changes.after)),
            changes.after.tolist(),
            changes.before.tolist(),
            strict=True,
        )
        for change, (transaction, number, after, before) in enumerate(rows):
            key = keys.get((transaction, number))
            if key is None:
                key = _Key.of(earlier.get(number) if transaction == 0 else None)
                key.first, keys[transaction, number] = change, key
            key.last = change
            if before != NONE:
                _remove(key, removed[before], change)
            if after != NONE:
                key.added.append((added[after], change))
        remaining = []
        for (transaction, number), key in keys.items():
            change = key.added[-1][1] if key.added else key.last
            if change >= 0 and (key.added or key.removed or key.undone):
                first = next((change for change in key.removed if change != _EARLIER), key.first)
                existed = key.undone or key.removed[-1:] not in ([], [_EARLIER])
                remaining.append((change, first, Op.DELETE if not key.added else Op.UPDATE if existed else Op.INSERT))
            elif change == _EARLIER:
                raise TerminalRangefeedError(
                    f"table {table}: a transaction of more than fetch_size gave several rows the same deferrable key, "
                    "and an earlier part of it contained the row that remains. Increase fetch_size, to 64MB at most. "
                    f"{READ_ANEW}"
                )
            if transaction == self._last:
                later = key.later()
                if later is not None:
                    following[number] = later
                else:
                    following.pop(number, None)
        changed, firsts, ops = np.array(sorted(remaining), np.int64).reshape(-1, 3).T
        return Folded(changed, firsts, ops.astype(np.uint8), np.zeros(len(changed), np.bool_))


def _remove(key: _Key, row_hash: int, change: int) -> None:
    for place, (added, by) in enumerate(key.added):
        if added in (row_hash, _ANY):
            del key.added[place]
            key.undone |= by == _DELIVERED
            return
    key.removed.append(change)


def _values(column: pa.Array) -> list[object] | None:
    """Return values that are equal where those of *column* are; None when it has texts that are not UTF-8 in others."""
    form = key_forms(column)
    if pa.types.is_temporal(form.type):
        form = form.view(pa.int32() if form.type.bit_width == 32 else pa.int64())
    elif pa.types.is_string(form.type):  # which need not be UTF-8
        form = form.view(pa.binary())
    try:
        values: list[object] = form.to_pylist()
    except UnicodeDecodeError:
        return None
    return values


def _hashes(columns: Sequence[Sequence[object]], count: int) -> list[int]:
    """Return a hash of each of *count* rows. The hash of a tuple of integers takes -1 and -2 for the same."""
    return [hash(repr(row)) for row in zip(*columns, strict=True)] if columns else [0] * count
