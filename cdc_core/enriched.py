"""What only the envelope `enriched` has: what happened, when the message was made, and where its row comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import pyarrow as pa

from cdc_core.rows import Op, RowBatch
from cdc_core.schema import TableSchema

V = TypeVar("V")

SOURCE_MEMBERS = (
    "changefeed_sink",
    "database_name",
    "job_id",
    "origin",
    "primary_keys",
    "schema_name",
    "source_node_locality",
    "table_name",
)
"""The members of `source` that every row has, in alphabetical order: texts, and `primary_keys`, a list of texts."""
_OPS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.SCAN: "c"}
_TEXTS = pa.array([None, *(_OPS[op] for op in Op)], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """Where the rows of a changefeed come from, apart from their table. Unknown values are empty. Picklable."""

    changefeed_sink: str = ""
    """Name of the sink, such as `kafka`."""
    job_id: str = ""
    """Name of the changefeed, as commands use it."""
    origin: str = ""
    """Kind of the source, such as `postgresql`."""
    source_node_locality: str = ""
    """Where the changefeed is coordinated."""

    def members(self, schema: TableSchema) -> dict[str, str | list[str]]:
        """Return the values of `SOURCE_MEMBERS` for rows of *schema*, in that order."""
        name = schema.name
        found: dict[str, Any] = {
            **asdict(self),
            "database_name": name.database,
            "primary_keys": list(schema.primary_key),
            "schema_name": name.schema,
            "table_name": name.table,
        }
        return {member: found[member] for member in SOURCE_MEMBERS}


def op_texts(rows: RowBatch) -> pa.Array:
    """Return the member `op` of each row: `c` for an inserted or scanned row, `u`, `d`."""
    return _TEXTS.take(rows.column("op"))


def op_of(text: str) -> Op:
    """Return the `Op` for a member `op`. Scanned and inserted rows look the same. Raises: ValueError."""
    for op, known in _OPS.items():
        if text == known:
            return op
    raise ValueError(f"unknown operation '{text}'")


def timestamps_of_source(source: Mapping[str, V]) -> dict[str, V]:
    """Return the metadata `updated` and `mvcc_timestamp` that are in a decoded *source*."""
    places = (("updated", "ts_hlc"), ("mvcc_timestamp", "mvcc_timestamp"))
    return {name: source[place] for name, place in places if place in source}
