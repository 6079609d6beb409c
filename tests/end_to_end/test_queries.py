"""What a query makes of the changes of a real table, from PostgreSQL through Spark to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.files import delivered
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed

pytestmark = pytest.mark.slow

QUERY = """
SELECT id, upper(status) AS status, amount * 2 AS twice, event_op() AS op,
    to_json(named_struct('s', (cdc_prev).status)) AS before, made, statement_timestamp() AS at
FROM orders o
WHERE event_op() = 'delete' OR (amount > 10 AND o.status IS DISTINCT FROM cdc_prev.status)
"""
NO, NEW = '{"s":null}', '{"s":"new"}'


def test_a_query_selects_rows_and_columns_of_scan_and_log(database: str, tmp_path: Path, kept_spark: KeptSpark) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, status text, amount numeric(8,2), made timestamp)")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute(
            "INSERT INTO orders SELECT n, 'new', n, '2024-01-01T12:00:00.5' FROM generate_series(1, 20) n"
        )
        with Feed(tmp_path, database, query=QUERY) as feed:
            feed.once(kept_spark)
            connection.execute("UPDATE orders SET status = 'paid' WHERE id IN (5, 15)")
            connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = 16")  # status as before
            connection.execute("DELETE FROM orders WHERE id IN (1, 20)")
            connection.execute("INSERT INTO orders VALUES (21, NULL, 100, 'infinity'), (22, 'new', 100, '-infinity')")
            feed.once(kept_spark)
            rows = delivered(feed.files, "orders")
    scanned, logged = rows[:10], rows[10:]
    assert [_shown(row) for row in scanned] == [
        {"id": n, "status": "NEW", "twice": 2.0 * n, "op": "insert", "before": NO, "made": "2024-01-01T12:00:00.5"}
        for n in range(11, 21)
    ]
    assert [_shown(row) for row in logged] == [
        {"id": 15, "status": "PAID", "twice": 30, "op": "update", "before": NEW, "made": "2024-01-01T12:00:00.5"},
        {"id": 1, "status": None, "twice": None, "op": "delete", "before": NEW, "made": None},
        {"id": 20, "status": None, "twice": None, "op": "delete", "before": NEW, "made": None},
        {"id": 22, "status": "NEW", "twice": 200, "op": "insert", "before": NO, "made": "-infinity"},
    ]


def test_what_spark_need_not_evaluate_is_delivered_as_selected(
    database: str, tmp_path: Path, kept_spark: KeptSpark
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, status text)")
        connection.execute("INSERT INTO orders SELECT n, 'new' FROM generate_series(1, 3) n")
        query = "SELECT status AS was, id FROM orders WHERE event_op() <> 'delete' AND id > 1"
        with Feed(tmp_path, database, query=query) as feed:
            feed.once(kept_spark)
            connection.execute("UPDATE orders SET status = 'paid'")
            connection.execute("DELETE FROM orders WHERE id = 2")
            feed.once(kept_spark)
            rows = delivered(feed.files, "orders")
    wanted = [{"id": id_, "was": was} for was in ("new", "paid") for id_ in (2, 3)]
    assert [{name: row[name] for name in row if name != "__crdb__"} for row in rows] == wanted


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if name not in ("at", "__crdb__")}
    assert row["at"] is not None, json.dumps(row)
    return shown
