"""A table gets another key while its rows are delivered: consumers have the whole table under the new key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cdc_testing.decoders import KEYED, avro_decoder
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.kafka_reading import read_topics
from cdc_testing.postgres import Sql
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

pytestmark = pytest.mark.slow

Rows = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE items (id bigint PRIMARY KEY, region text NOT NULL, n int NOT NULL)")
    sql.execute("INSERT INTO items SELECT n, 'eu', n FROM generate_series(1, 3000) n")
    return sql


def change(sql: Sql) -> None:
    sql.execute("UPDATE items SET n = 0 WHERE id < 10")
    sql.execute("DELETE FROM items WHERE id = 20")
    sql.execute("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (region, id)")
    sql.execute("UPDATE items SET region = 'us' WHERE id < 5")
    sql.execute("DELETE FROM items WHERE id = 30")


def table(sql: Sql) -> Rows:
    return {(row["region"], row["id"]): row for (row,) in sql.execute("SELECT to_jsonb(i) FROM items i")}


def test_avro_keys_get_a_schema_of_their_own(
    database: str,
    sql: Sql,
    tmp_path: Path,
    kept_threads: KeptThreads,
    kafka_broker: Kafka,
    schema_registry: Registry,
    topic_prefix: str,
) -> None:
    servers = kafka_broker.bootstrap_servers
    options = {"confluent_schema_registry": schema_registry.url, "topic_prefix": topic_prefix, "topic_partitions": 3}
    with Feed(tmp_path, database, ["items"], sink=f"kafka://{servers}", options=options, format_="avro") as feed:
        feed.once(kept_threads)
        change(sql)
        feed.once(kept_threads)
    rows: Rows = {}
    with avro_decoder(schema_registry.url) as decoder:
        for message in read_topics(servers, [f"{topic_prefix}items"]):
            if message.key is None:
                continue
            row = decoder.message(KEYED, message.key, message.value)
            key = row.key or ()
            if row.after is None:
                rows.pop(key, None)
            else:
                rows[key] = dict(row.after)
    assert {key: row for key, row in rows.items() if len(key) == 2} == table(sql)
    assert {key for key in rows if len(key) == 1} == {(n,) for n in range(1, 3001) if n != 20}
