"""Rows of any size: the memory of every process while values of 20 and 150 MB go from PostgreSQL to a sink."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.peaks import peaks, peaks_of_scan_and_log
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

from cdc_core.delivery.dead_letters import row_of

pytestmark = pytest.mark.slow

MB = 1_000_000
MAX_JVM_BYTES = 700 * MB


def bytes_of(size: int) -> bytes:
    """Return *size* bytes that no compression makes smaller."""
    return Random(size).randbytes(size)


def lines(directory: Path) -> list[dict[str, Any]]:
    """Return `after` of every line of the files, in the order of their names."""
    paths = sorted(directory.rglob("*.ndjson"), key=lambda path: path.name)
    return [json.loads(line)["after"] for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_a_large_value_is_scanned_and_followed_within_bounded_memory(
    database: str, tmp_path: Path, format_: str
) -> None:
    size = 150 * MB
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, body bytea)")
        connection.execute("INSERT INTO items VALUES (1, 1, %b)", [bytes_of(size)])
        with Feed(tmp_path, database, ["items"], format_=format_) as feed:
            scan = peaks(feed)
            connection.execute("UPDATE items SET body = body || '\\x00'")
            log = peaks(feed)
    assert max(scan["jvm"], log["jvm"]) < MAX_JVM_BYTES
    assert max(*scan.values(), *log.values()) < 6 * size


def test_a_row_above_the_limit_is_named_and_its_dead_letter_has_no_large_value(
    database: str, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, body bytea)")
        connection.execute("INSERT INTO items SELECT n, n, '\\x01' FROM generate_series(1, 100) n")
        connection.execute("UPDATE items SET body = %b WHERE id = 7", [bytes_of(3 * MB)])
        with Feed(tmp_path, database, ["items"], options={"max_row_bytes": "2MB"}) as feed:
            assert feed._run_here(kept_threads, "--once") == 1
        said = feed.log().splitlines()[-1]
        assert "the row of table public.items with key {'id': 7}, updated " in said
        assert "was refused by rangefeed 'postgres' (stage source): it has 3,000,0" in said
        assert "bytes, more than max_row_bytes (2MB)" in said
        letters = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead"}
        with Feed(tmp_path, database, ["items"], options={"max_row_bytes": "2MB", **letters}) as feed:
            feed.once(kept_threads)
            connection.execute("UPDATE items SET n = -n, body = body || '\\x00' WHERE id < 10")
            feed.once(kept_threads)
    found = lines(tmp_path / "dead")
    assert [letter["row"] for letter in found] == [{"id": 7, "n": 7}, {"id": 7, "n": -7}]
    assert {letter["stage"] for letter in found} == {"source"}
    rows = [row["id"] for row in lines(feed.files)]
    assert sorted(rows) == sorted([*(n for n in range(1, 101) if n != 7), *(n for n in range(1, 10) if n != 7)])


def test_unchanged_values_are_looked_up_within_bounded_memory(database: str, tmp_path: Path) -> None:
    size, count = 20 * MB, 10
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, body bytea)")
        with Feed(tmp_path, database, ["items"], format_="avro", options={"unchanged_toast": "lookup"}) as feed:
            for number in range(count):
                connection.execute("INSERT INTO items VALUES (%s, 1, %b)", [number, bytes_of(size)])
            found = peaks_of_scan_and_log(feed, connection, database, "UPDATE items SET n = 2")
    sizes = sorted(path.stat().st_size for path in feed.files.rglob("*.avro"))
    assert sum(sizes) > 2 * count * size
    assert max(found.values()) < 700 * MB


def test_kafka_refuses_a_large_row_by_name_and_its_dead_letter_has_it_whole(
    database: str, tmp_path: Path, kept_spark: KeptSpark, kafka_broker: Kafka, topic_prefix: str
) -> None:
    size = 150 * MB
    sink = f"kafka://{kafka_broker.bootstrap_servers}?topic_prefix={topic_prefix}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, body bytea)")
        connection.execute("INSERT INTO items VALUES (1, 1, '\\x01'), (2, 2, %b), (3, 3, '\\x03')", [bytes_of(size)])
        with Feed(tmp_path, database, ["items"], sink=sink) as feed:
            assert feed._run_here(kept_spark, "--once") == 1
        said = feed.log().splitlines()[-1]
        assert "the row of table public.items with key {'id': 2}, updated " in said
        assert "was refused by sink 'kafka' (stage sink): " in said
        letters = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead"}
        with Feed(tmp_path, database, ["items"], sink=sink, options=letters) as feed:
            found = peaks(feed)
    [letter] = lines(tmp_path / "dead")
    assert (letter["key"], letter["row"], letter["stage"]) == ([2], {"id": 2, "n": 2}, "sink")
    assert row_of(letter).column("after")[0].as_py() == {"id": 2, "n": 2, "body": bytes_of(size)}
    assert max(found.values()) < 10 * size
