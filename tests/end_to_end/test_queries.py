"""What a query makes of the changes of a real table, from PostgreSQL through Spark to files."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.cloud_events import of_kafka
from cdc_testing.distributions import install
from cdc_testing.files import delivered
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import read_topics
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.changefeeds.tracing import Trace
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.traced_change import STAGES, TracedChange

pytestmark = pytest.mark.slow

QUERY = """
SELECT id, upper(status) AS status, amount * 2 AS twice, event_op() AS op,
    (cdc_prev).status AS before, made, statement_timestamp() AS at
FROM orders o
WHERE event_op() = 'delete' OR (amount > 10 AND o.status IS DISTINCT FROM cdc_prev.status)
"""


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
        {"id": n, "status": "NEW", "twice": 2.0 * n, "op": "insert", "before": None, "made": "2024-01-01T12:00:00.5"}
        for n in range(11, 21)
    ]
    assert [_shown(row) for row in logged] == [
        {"id": 15, "status": "PAID", "twice": 30, "op": "update", "before": "new", "made": "2024-01-01T12:00:00.5"},
        {"id": 1, "status": None, "twice": None, "op": "delete", "before": "new", "made": None},
        {"id": 20, "status": None, "twice": None, "op": "delete", "before": "new", "made": None},
        {"id": 22, "status": "NEW", "twice": 200, "op": "insert", "before": None, "made": "-infinity"},
    ]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if name not in ("at", "__crdb__")}
    assert row["at"] is not None, json.dumps(row)
    return shown


def test_a_query_follows_its_table_through_changes(database: str, tmp_path: Path, kept_spark: KeptSpark) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount int, old text)")
        connection.execute("INSERT INTO orders VALUES (1, 1, 'a'), (2, -2, 'b')")
        options = {"schema_change_policy": "nobackfill"}
        query = "SELECT *, amount * 2 AS twice FROM orders WHERE amount > 0"
        with Feed(tmp_path, database, query=query, options=options) as feed:
            feed.once(kept_spark)
            connection.execute("INSERT INTO orders VALUES (3, 3, 'c'), (4, -4, 'd')")
            connection.execute("ALTER TABLE orders ADD COLUMN note text")
            connection.execute("INSERT INTO orders VALUES (5, 5, 'e', 'n'), (6, -6, 'f', 'n')")
            connection.execute("ALTER TABLE orders DROP COLUMN old")
            connection.execute("INSERT INTO orders VALUES (7, 7, 'n'), (8, -8, 'n')")
            feed.once(kept_spark)
            rows = delivered(feed.files, "orders")
            connection.execute("ALTER TABLE orders RENAME COLUMN amount TO total")
            connection.execute("INSERT INTO orders VALUES (9, 9, 'n')")
            with pytest.raises(AssertionError, match="status"):
                feed.once(kept_spark)
            log = feed.log()
    shown = [{name: value for name, value in row.items() if name != "__crdb__"} for row in rows]
    assert [row for number, row in enumerate(shown) if row not in shown[:number]] == [
        {"id": 1, "amount": 1, "old": "a", "twice": 2},
        {"id": 3, "amount": 3, "old": "c", "twice": 6},
        {"id": 5, "amount": 5, "old": "e", "note": "n", "twice": 10},
        {"id": 7, "amount": 7, "note": "n", "twice": 14},
    ]
    assert "query, line 1, column 11: table public.orders has no column 'amount'" in log
    assert "Traceback" not in log


def test_a_python_function_of_a_package_is_called_and_bad_rows_become_dead_letters(
    database: str, tmp_path: Path, kept_spark: KeptSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "cdc_testing.query_functions"  # workers have it too
    install(tmp_path / "site", "cdc-numbers", "1.0", module="cdc_numbers", source="", value=where)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO orders SELECT n, n FROM generate_series(1, 9000) n")
        connection.execute("UPDATE orders SET note = 'seven' WHERE id = 7")
        items = "id, whole_number(note) * 2 AS twice, joined(note, id) AS j"
        query = f"SELECT {items} FROM orders WHERE id < 9 OR id > 8990"
        options = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead"}
        with Feed(tmp_path, database, query=query, options=options) as feed:
            feed.once(kept_spark)
            connection.execute("INSERT INTO orders VALUES (9001, '5'), (9002, 'x'), (9003, NULL)")
            feed.once(kept_spark)
            rows = delivered(feed.files, "orders")
            letters = delivered(tmp_path / "dead", "test_dead_letters")
    wanted = [(n, 2 * n, f"{n}-{n}") for n in (1, 2, 3, 4, 5, 6, 8, *range(8991, 9001))]
    wanted += [(9001, 10, "5-9001"), (9003, None, "?-9003")]
    assert [(row["id"], row["twice"], row["j"]) for row in rows] == wanted
    found = sorted((letter["after"]["key"], letter["after"]["stage"], letter["after"]["error"]) for letter in letters)
    assert [(key, stage) for key, stage, _ in found] == [([7], "query"), ([9002], "query")]
    assert "whole_number(note) * 2: ValueError: invalid literal for int() with base 10: 'seven'" in found[0][2]


def test_a_trace_says_what_became_of_each_change_in_a_query(
    database: str, tmp_path: Path, kept_spark: KeptSpark
) -> None:
    query = "SELECT id, 100 / amount AS share FROM orders WHERE amount >= 0"
    options = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead"}
    traced: dict[str, TracedChange] = {}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount int)")
        connection.execute("INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
        with Feed(tmp_path, database, query=query, options=options) as feed:

            def follow() -> None:
                with closing(ProgressStore(store_url(feed.state))) as store:
                    record = Changefeeds(store).ask_trace("test", table="orders", key=None, rows=4, timeout="5m")
                    with Trace(store, record) as trace:
                        asked = f'"number":{trace.number}'
                        files = "*.run/*/traces"
                        feed.until(
                            "the trace", lambda: any(asked in path.read_text() for path in feed.state.glob(files))
                        )
                        connection.execute("UPDATE orders SET amount = CASE id WHEN 2 THEN -1 WHEN 3 THEN 0 ELSE 5 END")
                        feed.until("all changes", lambda: bool(trace.poll()) and trace.over)
                        traced.update({change.key: change for change in trace.changes})

            feed.during(kept_spark, follow)
    delivered_one, left_out, refused = traced["[1]"], traced["[2]"], traced["[3]"]
    assert list(delivered_one.moments) == list(STAGES)
    times = [delivered_one.after_s(stage) for stage in STAGES]
    assert times == sorted(times)
    assert (tmp_path / "files" / delivered_one.place["file"]).is_file()
    assert (left_out.left_out, refused.left_out, left_out.dead_letter, refused.dead_letter) == (
        True,
        False,
        None,
        "query",
    )
    assert all(change.complete and change.position for change in traced.values())
    assert traced["[4]"].moments.keys() == delivered_one.moments.keys()


def test_rows_in_kafka_are_events_and_keep_the_key_of_their_table(
    database: str, tmp_path: Path, kept_spark: KeptSpark, kafka_broker: Kafka, topic_prefix: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (a int, b text, c text, PRIMARY KEY (b, a))")
        connection.execute("INSERT INTO orders VALUES (1, 'x', 'c')")
        options = {
            "topic_prefix": topic_prefix,
            "topic_partitions": 1,
            "envelope": "cloudevents",
            "cloudevents_mode": "binary",
            "updated": False,
        }
        sink = f"kafka://{kafka_broker.bootstrap_servers}"
        query = "SELECT upper(c) AS c, 'b' AS b FROM orders"
        with Feed(tmp_path, database, query=query, options=options, sink=sink) as feed:
            feed.once(kept_spark)
            connection.execute("UPDATE orders SET c = 'd'")
            connection.execute("DELETE FROM orders")
            feed.once(kept_spark)
    messages = read_topics(kafka_broker.bootstrap_servers, [f"{topic_prefix}orders"])
    found = [(message.key and json.loads(message.key), of_kafka(message)) for message in messages]
    assert [(key, event.get_type(), event.get_subject(), event.get_data()) for key, event in found if key] == [
        (["x", 1], "cdc.scan", '["x", 1]', {"after": {"b": "b", "c": "C"}}),
        (["x", 1], "cdc.update", '["x", 1]', {"after": {"b": "b", "c": "D"}}),
        (["x", 1], "cdc.delete", '["x", 1]', {"after": None}),
    ]
    table = f"/cdc/test/{database.rpartition('/')[2]}/public/orders"
    assert {event.get_source() for key, event in found if key} == {table}
    marks = [event for key, event in found if key is None]
    assert {(event.get_source(), event.get_type()) for event in marks} == {("/cdc/test", "cdc.resolved")}
    assert found[-1][1] is marks[-1]
    assert found[-1][1].get_time() > max(event.get_time() for key, event in found if key)
