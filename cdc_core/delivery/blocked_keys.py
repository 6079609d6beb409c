"""Keys whose later rows must wait because an earlier row is a dead letter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.delivery.row_json import key_column, key_json
from cdc_core.rows import RowBatch

__all__ = ["BlockedKeys"]


class BlockedKeys:
    """A set of keys, as (full table name, `key_json`), for finding their rows in batches that have few or none."""

    def __init__(self, keys: Iterable[Sequence[str]] = ()) -> None:
        self._keys: dict[str, set[str]] = {}
        self._sets: dict[str, tuple[pa.StructType, list[pa.Array | None]]] = {}
        for table, key in keys:
            self.add(table, key)

    def add(self, table: str, key: str) -> None:
        self._keys.setdefault(table, set()).add(key)
        self._sets.pop(table, None)

    def find(self, rows: RowBatch) -> Sequence[int]:
        """Return the indices of *rows* that have one of the keys, ascending.

        Arrow looks up each key column; only rows whose every key column has the value of some key are compared one by
        one.
        """
        table = rows.schema.name.full
        keys = self._keys.get(table)
        if not keys or not len(rows):
            return ()
        column = rows.column("key")
        found = np.ones(len(rows), bool)
        for index, values in enumerate(self._value_sets(table, rows.schema.key_type)):
            if values is not None:
                found &= pc.is_in(column.field(index), value_set=values).to_numpy(zero_copy_only=False)
        return [int(row) for row in np.flatnonzero(found) if key_json(rows.schema, column[int(row)]) in keys]

    def _value_sets(self, table: str, key_type: pa.StructType) -> list[pa.Array | None]:
        """Return the values of the keys of *table* in each key column; None where Arrow cannot look them up."""
        known = self._sets.get(table)
        if known is not None and known[0] == key_type:
            return known[1]
        keys = [json.loads(key) for key in self._keys[table]]
        fit = [key for key in keys if len(key) == key_type.num_fields]
        sets = [key_column([key[index] for key in fit], field.type) for index, field in enumerate(key_type)]
        self._sets[table] = key_type, sets
        return sets
