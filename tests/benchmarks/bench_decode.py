"""Decoding alone: messages that are in memory already, in binary form, into row batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from benchmarks.context import Bench
from benchmarks.report import Figure
from benchmarks.slot import backlog
from benchmarks.timing import fastest_s
from cdc_rangefeed_postgres.pgoutput import LogDecoder
from cdc_rangefeed_postgres.relations import relation_columns
from cdc_rangefeed_postgres.transaction_framing import TransactionClock
from cdc_rangefeed_postgres.types import TableVersion, TypeCatalog, column_type

from cdc_core import Column, TableName, TableSchema, Timestamp

_BEYOND_EVERY_LSN = 2**63 - 1


def run(bench: Bench) -> Iterator[Figure]:
    changes = bench.sizes.part_rows
    with backlog(bench, changes) as slot:
        arrays = list(slot.messages())
    versions = _versions(arrays[0])
    counted: list[int] = []

    def decode() -> None:
        clock = TransactionClock(start_lsn=0, end_lsn=_BEYOND_EVERY_LSN, after=Timestamp())
        decoder = LogDecoder(versions, clock)
        counted.append(sum(len(rows) for messages in arrays for rows in decoder.decode(messages)))

    seconds = fastest_s(decode)
    assert counted[-1] == changes, f"{counted[-1]} rows decoded, {changes} expected"
    yield Figure(
        name="part: decode log messages",
        value=changes / seconds,
        unit="rows/s",
        details={"arrays": len(arrays), "bytes": sum(messages.nbytes for messages in arrays)},
    )


def _versions(messages: pa.Array) -> dict[int, list[TableVersion]]:
    """Return the one version of the one table, as its Relation message tells it."""
    relation = relation_columns(next(m for m in (message.as_py() for message in messages) if m[:1] == b"R"))
    catalog = TypeCatalog()
    schema = TableSchema(
        name=TableName("bench", relation.namespace, relation.name),
        version=1,
        columns=tuple(Column(name=column.name, type=column_type(column, catalog)) for column in relation.columns),
        primary_key=("id",),
    )
    return {relation.relid: [TableVersion(schema, relation.columns)]}
