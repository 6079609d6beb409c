"""The pages about migration hand a position over as they say: nothing is lost, and nothing is out of order."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import defaultdict
from pathlib import Path

import psycopg
import pytest
from benchmarks.kafka_connect import KafkaConnect
from cdc_testing.documented_role import documented
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import Message, read_topics
from cdc_testing.pages import Page
from cdc_testing.postgres import Sql, writing
from cdc_testing.runs import eventually
from cdc_testing.thread_host import KeptThreads
from sqlalchemy import make_url

from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url

DEBEZIUM = Page("migrating-from-debezium.md")
CREATE, READY, ADVANCE, REMOVE = DEBEZIUM.blocks("sql")
(STOP,) = re.findall(r"(?m)^\$ curl -X (.*)$", DEBEZIUM.text)
TABLES = "CREATE TABLE orders (id int PRIMARY KEY, n int); CREATE TABLE customers (id int PRIMARY KEY, n int)"
PEEKED = "'debezium', NULL, NULL, 'proto_version', '1', 'publication_names', 'dbz_publication'"


def run_each(connection: Sql, statements: str) -> None:
    for statement in statements.strip().split(";\n"):
        connection.execute(statement.encode())


def changefeed(directory: Path, database: str, sink: str, *, slot: str = "cdc_shop", without: str = "$") -> str:
    """Write the changefeed of the page with another source, sink and slot, without an option unknown to the sink."""
    (text,) = DEBEZIUM.blocks("toml")
    text = re.sub(r"(?m)^source = .*$", f"source = {json.dumps(documented(database))}", text)
    text = re.sub(r"(?m)^sink = .*$", f"sink = {json.dumps(sink)}", text)
    text = text.replace('slot_name = "cdc_shop"', f'slot_name = "{slot}"')
    path = directory / f"{slot}.toml"
    path.write_text("\n".join(line for line in text.splitlines() if not re.match(without, line)))
    return str(path)


def run_once(path: str, threads: KeptThreads) -> None:
    with threads.lent():
        assert main(["run", path, "--once", "--state", f"{path}.state"]) == 0


def test_a_changefeed_begins_where_debezium_would_go_on(
    database: str, sql: Sql, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    sql.execute(TABLES)
    sql.execute("CREATE PUBLICATION dbz_publication FOR TABLE orders, customers")
    sql.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
    run_each(sql, CREATE)
    sql.execute("INSERT INTO orders SELECT g, 0 FROM generate_series(1, 10) g")
    assert sql.execute(READY.encode()).fetchall() == [(False,)]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot advance replication slot"):
        sql.execute(ADVANCE.encode())
    sql.execute(f"SELECT count(*) FROM pg_logical_slot_get_binary_changes({PEEKED})")
    assert sql.execute(READY.encode()).fetchall() == [(True,)]
    sql.execute("INSERT INTO orders SELECT g, 0 FROM generate_series(11, 20) g")
    sql.execute("INSERT INTO customers VALUES (1, 0)")
    assert [name for name, _ in sql.execute(ADVANCE.encode())] == ["debezium"]
    path = changefeed(tmp_path, database, f"file://{tmp_path}/files", without="tombstones_on_delete")
    assert main(["check", path]) == 0
    run_once(path, kept_threads)
    lines = [line for file in tmp_path.rglob("*.ndjson") for line in file.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    found = sorted((row["source"]["table_name"], row["after"]["id"], row["op"]) for row in rows)
    assert found == [("customers", 1, "c"), *(("orders", number, "c") for number in range(11, 21))]
    run_each(sql, REMOVE)
    assert sql.execute("SELECT pubname::text FROM pg_publication").fetchall() == [("cdc_shop",)]


def by_key(messages: list[Message]) -> dict[int, list[int]]:
    """Return the versions of each key in the order of the messages. Tombstones are left out."""
    found: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        if message.key is not None and message.value is not None:
            found[json.loads(message.key)["id"]].append((json.loads(message.value)["after"] or {"n": -1})["n"])
    return found


def commit_times(messages: list[Message]) -> dict[tuple[int, int], int]:
    """Return the time of the commit of each version, in nanoseconds."""
    rows = [json.loads(message.value) for message in messages if message.value is not None]
    return {(row["after"]["id"], row["after"]["n"]): row["source"]["ts_ns"] for row in rows if row["after"]}


@pytest.mark.slow
def test_after_the_real_debezium_every_version_arrives_in_order(
    database: str, sql: Sql, tmp_path: Path, kept_threads: KeptThreads, kafka_broker: Kafka, topic_prefix: str
) -> None:
    def write(connection: Sql, number: int) -> None:
        connection.execute("UPDATE orders SET n = n + 1 WHERE id = %s", [number % 20 + 1])

    def here(statements: str) -> str:
        return statements.replace("dbz_publication", connect.name).replace("'debezium'", f"'{connect.name}'")

    sql.execute(TABLES)
    sql.execute("INSERT INTO orders SELECT g, 0 FROM generate_series(1, 20) g")
    brokers = kafka_broker.bootstrap_servers
    connect = KafkaConnect(tmp_path, database, table="public.orders", brokers=brokers)
    with connect.worker():
        eventually("the snapshot", lambda: sum(connect.topic.ends().values()) >= 20, look_s=0.5)
        with writing(database, write):
            run_each(sql, CREATE)
            sql.execute("SELECT pg_copy_logical_replication_slot('cdc_shop', 'cdc_twice')")
            eventually("Debezium", lambda: sql.execute(here(READY).encode()).fetchall() == [(True,)], look_s=0.5)
            assert sql.execute(here(ADVANCE).encode()).fetchall() == [], "it still reads"
            stop = STOP.replace("http://connect.example:8083", connect.rest).replace("/shop/", f"/{connect.name}/")
            method, url = stop.split()
            urllib.request.urlopen(urllib.request.Request(url, method=method)).close()
            eventually("its end", lambda: len(sql.execute(here(ADVANCE).encode()).fetchall()) == 1)
    sql.execute("DELETE FROM orders WHERE id = 20")
    path = changefeed(tmp_path, database, f"kafka://{brokers}?topic_prefix={topic_prefix}")
    run_once(path, kept_threads)
    of_debezium = read_topics(brokers, [connect.topic.name])
    messages = read_topics(brokers, [f"{topic_prefix}public.orders"])
    old, new = by_key(of_debezium), by_key(messages)
    for key, last in sql.execute("SELECT id, n FROM orders"):
        assert set(old[key]) | set(new[key]) == set(range(last + 1)), "a version is missing"
        assert new[key] == sorted(set(new[key])), "a version is out of order"
        assert new[key][-1] == last
    assert new[20][-1] == -1
    assert [message.value for message in messages if message.key == b'{"id": 20}'][-1] is None, "the tombstone"
    update = next(json.loads(message.value) for message in messages if message.value)
    source = update["source"]
    theirs, ours = map(json.loads, DEBEZIUM.blocks("json"))
    last_update = json.loads(of_debezium[-1].value or b"")
    assert theirs.keys() == last_update.keys()
    assert theirs["source"].keys() == last_update["source"].keys()
    assert (ours.keys(), ours["source"].keys()) == (update.keys(), source.keys())
    cells = re.findall(r"(?m)^\| `source\..*? \| (.*?) \|", DEBEZIUM.section("Messages"))
    named = {name for cell in cells for name in re.findall(r"`(?:source\.)?(\w+)`", cell)} - {"updated"}
    assert named >= {"job_id", "table_name", "ts_hlc"}
    assert named <= set(source)

    again = changefeed(tmp_path, database, f"kafka://{brokers}?topic_prefix={topic_prefix}twice.", slot="cdc_twice")
    run_once(again, kept_threads)
    before, after = (
        commit_times(of_debezium),
        commit_times(read_topics(brokers, [f"{topic_prefix}twice.public.orders"])),
    )
    common = before.keys() & after.keys()
    assert len(common) > 10
    assert all(0 <= after[version] - before[version] < 1_000_000 for version in common), "commits in one microsecond"


def test_the_statements_for_those_who_come_from_cockroachdb_run(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page("migrating-from-cockroachdb.md")
    create, statement = page.blocks(" *sql")
    monkeypatch.setenv("CDC_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PASSWORD", str(make_url(database).password))
    source = documented(database).replace(str(make_url(database).password), "${PASSWORD}")
    sql.execute(TABLES)
    run_each(sql, create)
    assert "partition_alg = 'fnv-1a'" in statement
    text = statement.replace("kafka://broker.example.com:9092", f"file://{tmp_path}/files")
    text = text.replace(" partition_alg = 'fnv-1a',", "")
    assert main(["sql", "--source", source, text]) == 0, capsys.readouterr().err
    store = ProgressStore(store_url(tmp_path / "store"))
    assert [job.name for job in store.jobs.all()] == ["shop"]
    store.close()
