"""Random queries over random rows: with and without what a scan leaves out, and by a reference in Python.

CDC_QUERY_SEED chooses others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.evaluating import answers, planned
from pyspark.sql import SparkSession

from cdc_core import Column, ColumnType, Comparison, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query

SEED = int(os.environ.get("CDC_QUERY_SEED", "1"))
QUERIES = 6
Row = dict[str, Any]
TYPES = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "n": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "s": ColumnType(kind=Kind.STRING, source="text"),
    "b": ColumnType(kind=Kind.BOOL, source="boolean"),
}
SCHEMA = TableSchema(
    name=TableName("db", "public", "t"),
    version=1,
    columns=tuple(Column(name=name, type=type_) for name, type_ in TYPES.items()),
    primary_key=("id",),
)


def strict(function: Callable[..., Any], *names: str) -> Callable[[Row], Any]:
    """Return *function* of these columns, null where one of them is."""
    return lambda row: None if any(row[name] is None for name in names) else function(*(row[name] for name in names))


def quotient(n: int) -> int:
    return int(10 / n)  # div goes towards zero; ZeroDivisionError where Spark fails


ATOMS: dict[str, Callable[[Row], Any]] = {
    "n > 1": strict(lambda n: n > 1, "n"),
    "n <> 2": strict(lambda n: n != 2, "n"),
    "n BETWEEN -1 AND 2": strict(lambda n: -1 <= n <= 2, "n"),
    "n IN (0, 1, 3)": strict(lambda n: n in (0, 1, 3), "n"),
    "s = 'b'": strict(lambda s: s == "b", "s"),
    "s IS NOT NULL": lambda row: row["s"] is not None,
    "n IS NULL": lambda row: row["n"] is None,
    "b": strict(bool, "b"),
    "NOT b": strict(lambda b: not b, "b"),
    "n % 2 = 0": strict(lambda n: n % 2 == 0, "n"),
    "length(s) = 1": strict(lambda s: len(s) == 1, "s"),
    "event_op() <> 'delete'": lambda row: row["op"] is not Op.DELETE,
    "10 div n > 3": strict(lambda n: quotient(n) > 3, "n"),
}
ITEMS: dict[str, Callable[[Row], Any]] = {
    "s": lambda row: row["s"],
    "n": lambda row: row["n"],
    "n + 1 AS more": strict(lambda n: n + 1, "n"),
    "upper(s)": strict(str.upper, "s"),
    "coalesce(n, 0) AS known": lambda row: row["n"] or 0,
    "CASE WHEN b THEN n END AS chosen": lambda row: row["n"] if row["b"] else None,
    "10 div n AS share": strict(quotient, "n"),
}


def batch(rows: Sequence[Row]) -> RowBatch:
    count = len(rows)
    return RowBatch.of(
        SCHEMA,
        op=pa.array([row["op"] for row in rows], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([1] * count, pa.int64()), pa.array([0] * count, pa.int32())),
        key=pa.array([{"id": row["id"]} for row in rows], SCHEMA.key_type),
        after=pa.array(
            [None if row["op"] is Op.DELETE else {name: row[name] for name in TYPES} for row in rows], SCHEMA.after_type
        ),
    )


def reference(rows: Sequence[Row], items: Sequence[str], atoms: Sequence[str]) -> list[Any]:
    """Return for each row that is not left out its key and its values, or that it is bad."""
    found: list[Any] = []
    for row in rows:
        try:
            held: Any = True
            for atom in atoms:  # AND: after a null it goes on, after a false it does not
                value = ATOMS[atom](row)
                held = False if value is False else None if None in (held, value) else held
                if held is False:
                    break
            if held:
                found.append((row["id"], [ITEMS[item](row) for item in items]))
        except ZeroDivisionError:
            found.append((row["id"], "bad"))
    return found


def evaluated(session: SparkSession, text: str, rows: Sequence[Row]) -> list[Any]:
    found: list[Any] = []
    for each in answers(session, planned(session, text, SCHEMA), batch(rows)):
        part = each.row if isinstance(each, BadRow) else each
        keys = [key["id"] for key in part.column("key").to_pylist()]
        values = part.column("after").to_pylist()
        bad = isinstance(each, BadRow)
        found += [(key, "bad" if bad else list(row.values())) for key, row in zip(keys, values, strict=True)]
    return found


def scanned(text: str, rows: Sequence[Row]) -> list[Row]:
    """Return *rows* without what a scan leaves out of those that it reads."""
    restriction = restriction_of(parse_query(text), SCHEMA)
    used = set(TYPES) if restriction.columns is None else restriction.columns
    kept = []
    for row in rows:
        if row["op"] is not Op.SCAN:
            kept.append(row)
            continue
        held = [holds(comparison, row[comparison.column]) for comparison in restriction.comparisons]
        if False not in held and (restriction.keep_unknown or None not in held):
            kept.append({name: value if name in used or name == "op" else None for name, value in row.items()})
    return kept


def holds(comparison: Comparison, value: Any) -> bool | None:
    if comparison.operator in ("is null", "is not null"):
        return (value is None) == (comparison.operator == "is null")
    if value is None:
        return None
    first = comparison.values[0]
    results: dict[str, Callable[[], bool]] = {
        "=": lambda: value == first,
        "<>": lambda: value != first,
        "<": lambda: value < first,
        "<=": lambda: value <= first,
        ">": lambda: value > first,
        ">=": lambda: value >= first,
        "in": lambda: value in comparison.values,
    }
    return results[comparison.operator]()


def random_rows(rng: random.Random) -> list[Row]:
    rows: list[Row] = []
    for number in range(60):
        op = rng.choice([Op.SCAN, Op.SCAN, Op.SCAN, Op.INSERT, Op.UPDATE, Op.DELETE])
        values: Row = {"n": rng.randint(-3, 4), "s": rng.choice(["a", "b", "bb"]), "b": rng.random() < 0.5}
        gone = op is Op.DELETE
        rows.append(
            {"id": number, "op": op, **{k: None if gone or rng.random() < 0.2 else v for k, v in values.items()}}
        )
    return rows


@pytest.mark.slow
def test_messages_are_the_same_with_and_without_push_down_and_by_the_reference(session: SparkSession) -> None:
    rng = random.Random(SEED)
    restricted = 0
    for _ in range(QUERIES):
        items, atoms = rng.sample(list(ITEMS), rng.randint(1, 3)), rng.sample(list(ATOMS), rng.randint(1, 3))
        text = f"SELECT {', '.join(items)} FROM t WHERE {' AND '.join(atoms)}"
        rows = random_rows(rng)
        less = scanned(text, rows)
        restricted += len(less) < len(rows)
        wanted = reference(rows, items, atoms)
        context = f"{text}\nCDC_QUERY_SEED={SEED}"
        assert evaluated(session, text, rows) == wanted, context
        assert evaluated(session, text, less) == wanted, context
    assert restricted, "no query restricted its scan"
