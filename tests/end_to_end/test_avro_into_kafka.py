"""Avro in Kafka, read with Confluent's deserializer: every transaction is complete and no version is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.bank import TABLES, Bank, assert_faithful_kafka, open_bank
from cdc_testing.counts import Counts
from cdc_testing.decoders import avro_decoder
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.runs import Feed, eventually
from cdc_testing.thread_host import KeptThreads

pytestmark = pytest.mark.slow


def test_the_books_balance_at_every_cut(
    database: str,
    tmp_path: Path,
    kafka_broker: Kafka,
    schema_registry: Registry,
    topic_prefix: str,
    kept_threads: KeptThreads,
    counts: Counts,
) -> None:
    options = {
        "topic_prefix": topic_prefix,
        "topic_partitions": 3,
        "max_step_bytes": "64kB",
        "confluent_schema_registry": schema_registry.url,
    }
    sink = f"kafka://{kafka_broker.bootstrap_servers}"
    open_bank(database)
    with Feed(tmp_path, database, TABLES, sink=sink, options=options, format_="avro") as feed:
        with Bank(database, pause_s=0.02) as bank:
            eventually("transactions", lambda: bank.transactions >= 50)
            feed.once(kept_threads)
            enough = bank.transactions + 150
            eventually("more transactions", lambda: bank.transactions >= enough)
        feed.once(kept_threads)
    with avro_decoder(schema_registry.url) as decoder:
        found = assert_faithful_kafka(kafka_broker.bootstrap_servers, database, prefix=topic_prefix, decoder=decoder)
    assert found.cuts > 100, "there is one cut for each transaction after the scan"
    counts(rows=found.rows, marks=found.marks, cuts=found.cuts)
