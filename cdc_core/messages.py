"""Encoded messages, and the names of the topics that they go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from cdc_core.schema import TableName

__all__ = ["MessageBatch", "TopicNames"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """The encoded rows of one `RowBatch`, in the same order; all of them go to one topic.

    `key` and `value` are Arrow arrays of type large_binary or binary (a null value is a tombstone); `updated` is the
    column of that name of the rows; `headers` is a map<string, binary> array when there are headers per message.
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
    """How tables become topics: the table's name, or its full name, after a prefix. Sinks may escape the result."""

    full_table_name: bool = False
    prefix: str = ""

    def of(self, name: TableName) -> str:
        """Return the topic of table *name*."""
        return self.prefix + (name.full if self.full_table_name else name.table)
