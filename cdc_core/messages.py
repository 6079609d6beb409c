"""Encoded messages, and the names of their topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from cdc_core.schema import TableName

__all__ = ["MessageBatch", "TopicNames"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """The encoded rows of one `RowBatch`, in the same order, for one topic.

    `key` and `value` are Arrow arrays, large_binary or binary. A null value is a tombstone. `updated` is the column of
    the rows. `headers` is a map<string, binary> array, or None without headers.
    """

    topic: str
    key: pa.Array
    value: pa.Array
    updated: pa.StructArray
    headers: pa.MapArray | None = None

    def __len__(self) -> int:
        return len(self.value)

    @property
    def nbytes(self) -> int:
        return cast(int, self.key.nbytes + self.value.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The topics of tables: the prefix, and the table's name or full name. Sinks may escape the result."""

    full_table_name: bool = False
    prefix: str = ""

    def of(self, name: TableName) -> str:
        """Return the topic of table *name*."""
        return self.prefix + (name.full if self.full_table_name else name.table)
