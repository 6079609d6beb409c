"""Encoded messages, and the names of their topics."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import cast

import pyarrow as pa

from cdc_core.cloudevents import Attributes
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName

_PLACEHOLDERS = ("database", "schema", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """The encoded rows of one `RowBatch`, in the same order, for one topic.

    `key` and `value` are Arrow arrays, large_binary or binary. A null value is a tombstone. `updated` is the column of
    the rows. `headers` is a map<string, binary> array, or None without headers. In mode "binary" of envelope
    `cloudevents`, `attributes` are those of the events, and `value` is their data; otherwise, `attributes` is None.
    """

    topic: str
    key: pa.Array
    value: pa.Array
    updated: pa.StructArray
    headers: pa.MapArray | None = None
    attributes: Attributes | None = None

    def __len__(self) -> int:
        return len(self.value)

    @property
    def nbytes(self) -> int:
        return cast(int, self.key.nbytes + self.value.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNames:
    """The topics of tables: the prefix, followed by the table's name, its full name, or the filled-in pattern.

    Sinks may escape the result.
    """

    full_table_name: bool = False
    prefix: str = ""
    pattern: str | None = None

    @property
    def shared(self) -> bool:
        """Whether all tables are meant to share one topic, because the pattern has no placeholder."""
        return self.pattern is not None and not topic_placeholders(self.pattern)

    @property
    def remedy(self) -> str:
        """For error messages: how to give two tables of one name different topics."""
        if self.pattern is None and not self.full_table_name:
            return "set option full_table_name"
        known = _PLACEHOLDERS if self.pattern is None else topic_placeholders(self.pattern)
        missing = next((name for name in ("table", "schema") if name not in known), None)
        if missing is None:
            return "set option topic to a pattern such as {schema}-{table}"
        return f"add {{{missing}}} to option topic"

    def of_rows(self, rows: RowBatch) -> str:
        """Return the topic of *rows*, as a sink gets them: the prefix and `rows.topic`, or their table's topic."""
        topic = rows.topic
        return self.of(rows.schema.name) if topic is None else self.prefix + topic

    def of(self, name: TableName) -> str:
        """Return the topic of table *name*."""
        if self.pattern is not None:
            parts = {part: getattr(name, part) for part in _PLACEHOLDERS}
            return self.prefix + self.pattern.format_map(parts)
        full = f"{name.database}.{name.schema}.{name.table}"
        return self.prefix + (full if self.full_table_name else name.table)


def topic_placeholders(pattern: str) -> frozenset[str]:
    """Return the placeholders in *pattern*, without braces. Raises: ValueError, a sentence, when it cannot be used."""
    try:
        fields = [field for field in Formatter().parse(pattern) if field[1] is not None]
    except ValueError:
        raise ValueError(f"option 'topic' is '{pattern}', which has an unmatched brace; write {{{{ or }}}}") from None
    for _, name, form, conversion in fields:
        if name not in _PLACEHOLDERS or form or conversion:
            written = f"{name}{'!' + conversion if conversion else ''}{':' + form if form else ''}"
            known = "{database}, {schema} and {table}"
            raise ValueError(f"option 'topic' has the unknown placeholder {{{written}}}; use {known}")
    return frozenset(name for _, name, _, _ in fields if name is not None)
