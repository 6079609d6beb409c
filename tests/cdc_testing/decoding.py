"""Hand-written logs of two small tables, decoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cdc_rangefeed_postgres.pgoutput import LogDecoder
from cdc_rangefeed_postgres.transaction_framing import TransactionClock
from cdc_rangefeed_postgres.types import PgColumn, TableVersion, TypeCatalog, column_type
from cdc_testing.pgmessages import begin, commit, log, relation

from cdc_core import Column, Op, RowBatch, TableName, TableSchema, Timestamp

US = 1_700_000_000_000_000
WALL = US * 1000
T, U = 16_001, 16_002


def version_of(*columns: PgColumn, name: str = "t", number: int = 1, key: Sequence[str] = ("id",)) -> TableVersion:
    schema = TableSchema(
        name=TableName("d", "public", name),
        version=number,
        columns=tuple(Column(name=column.name, type=column_type(column, TypeCatalog())) for column in columns),
        primary_key=tuple(key),
    )
    return TableVersion(schema, columns)


ID, V = PgColumn("id", 23, -1, True), PgColumn("v", 25)
PLAIN = version_of(ID, V)
OTHER = version_of(ID, V, name="u")
RELATION = relation(T, PLAIN.columns)


def decoder_of(**options: Any) -> LogDecoder:
    slice_: dict[str, Any] = {"start_lsn": 0, "end_lsn": 1 << 62, "after": Timestamp()}
    slice_ |= {name: options.pop(name) for name in (*slice_, "until") if name in options}
    return LogDecoder(options.pop("versions", {T: [PLAIN], U: [OTHER]}), TransactionClock(**slice_), **options)


def transaction(*changes: bytes, lsn: int = 100, us: int = US) -> tuple[bytes, ...]:
    return begin(lsn, us=us), *changes, commit()


def rows_of(batches: Iterable[RowBatch]) -> list[tuple[Any, ...]]:
    """Return (op, key, after) of each row, and `before` if the batch has it. Structs are tuples."""
    rows = []
    for batch in batches:
        for row in batch.batch.to_pylist():
            images = [row["after"]] + ([row["before"]] if batch.has_before else [])
            values = [None if image is None else tuple(image.values()) for image in images]
            rows.append((Op(row["op"]).name, *row["key"].values(), *values))
    return rows


def updated_of(batches: Iterable[RowBatch], column: str = "updated") -> list[tuple[int, int]]:
    rows = [row for batch in batches for row in batch.column(column).to_pylist()]
    return [(row["wall"] - WALL, row["logical"]) for row in rows]


def read(*changes: bytes, **options: Any) -> list[tuple[Any, ...]]:
    return rows_of(decoder_of(**options).decode(log(*transaction(RELATION, *changes))))
