"""The outbox on its page works as it says, from PostgreSQL into Kafka."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import psycopg
import pytest
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import read_topics
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page
from cdc_testing.runs import Feed

PAGE = Page("outbox.md")


@pytest.mark.slow
def test_events_of_an_outbox_arrive_in_the_topics_of_their_aggregates(
    database: str, tmp_path: Path, kept_spark: KeptSpark, kafka_broker: Kafka, topic_prefix: str
) -> None:
    create, change = PAGE.blocks("sql")
    (text,) = PAGE.blocks("toml")
    written = tomllib.loads(text)["changefeed"]["outbox"]
    options = {**written["options"], "topic_prefix": topic_prefix, "updated": False, "resolved": "0s"}
    sink = f"kafka://{kafka_broker.bootstrap_servers}"
    first, later = change.split("INSERT INTO")[1:]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(create)
        with Feed(tmp_path, database, query=written["query"], options=options, sink=sink) as feed:
            connection.execute(f"INSERT INTO{first}")
            feed.once(kept_spark)
            for statement in f"INSERT INTO{later}".strip().split("\n"):
                connection.execute(statement)
            feed.once(kept_spark)
    topics = [f"{topic_prefix}order.events", f"{topic_prefix}customer.events"]
    received = read_topics(kafka_broker.bootstrap_servers, topics)
    (shown,) = PAGE.blocks("text")
    found = {
        f"{message.topic.removeprefix(topic_prefix)} {message.key.decode()} {(message.value or b'').decode()}"
        for message in received
        if message.key is not None
    }
    assert found == set(shown.splitlines())
    of_orders = [message.key for message in received if message.topic == topics[0] and message.key is not None]
    assert of_orders == [b'["o-1", 1]', b'["o-1", 3]']
    last = {
        message.topic: json.loads(message.value or b"")["__crdb__"]["resolved"]
        for message in received
        if message.key is None
    }
    assert last[topics[0]] == last[topics[1]], "the second run wrote no row to the second topic, but its marks"
