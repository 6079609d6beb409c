"""The bank's auditor finds what a sink could do wrong: messages made by hand, whole or spoiled in one way."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest
from cdc_testing.bank import assert_faithful_kafka, open_bank
from cdc_testing.kafka_fixtures import Kafka
from cdc_testing.kafka_reading import create_topic
from confluent_kafka import Producer

from cdc_core import Timestamp

pytestmark = pytest.mark.slow

Sent = tuple[str, int, int | None, str]
"""Topic, partition, key, value; a mark has no key."""


def row(account: int, balance: int, version: int, updated: int, *, partition: int | None = None) -> Sent:
    note = f"account {account}" if version == 1 else None
    after = {"id": account, "balance": balance, "version": version, "note": note}
    body = json.dumps({"after": after, "updated": str(Timestamp(updated))})
    return "accounts", account % 2 if partition is None else partition, account, body


def marks(resolved: int) -> list[Sent]:
    value = json.dumps({"resolved": str(Timestamp(resolved))})
    return [(topic, partition, None, value) for topic in ("accounts", "closed") for partition in (0, 1)]


SCAN = [row(account, 1000, 1, 1) for account in range(1, 201)]
GIVER, TAKER = row(1, 900, 2, 2), row(2, 1100, 2, 2)


@pytest.fixture
def judge(database: str, kafka_broker: Kafka, topic_prefix: str) -> Callable[[list[Sent]], int]:
    """Returns the number of cuts of a history that ends with account 1 having paid 100 to account 2."""
    open_bank(database)
    with psycopg.connect(database) as connection:
        pay = "UPDATE accounts SET balance = balance + %s, version = 2, note = NULL WHERE id = %s"
        connection.execute(pay, [-100, 1])
        connection.execute(pay, [100, 2])

    def judge(history: list[Sent]) -> int:
        for topic in ("accounts", "closed"):
            create_topic(kafka_broker.bootstrap_servers, topic_prefix + topic, partitions=2)
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        for topic, partition, key, value in history:
            keyed = None if key is None else json.dumps([key]).encode()
            producer.produce(topic_prefix + topic, value.encode(), keyed, partition=partition)
        assert producer.flush(30) == 0
        found = assert_faithful_kafka(kafka_broker.bootstrap_servers, database, prefix=topic_prefix)
        assert (found.rows, found.partitions) == (sum(1 for sent in history if sent[2] is not None), 4)
        return found.cuts

    return judge


def test_a_faithful_history_passes(judge: Callable[[list[Sent]], int]) -> None:
    assert judge([*SCAN, *marks(1), GIVER, TAKER, GIVER, *marks(2), *marks(3), TAKER]) == 4


@pytest.mark.parametrize(
    ("history", "finding"),
    [
        ([*SCAN, *marks(1), GIVER, *marks(2)], "at resolved 2.0000000000: the books say 199900, not 200000"),
        ([*SCAN, *marks(1), GIVER, row(2, 1100, 2, 3), *marks(3)], "at 2.0000000000: the books say 199900"),
        ([*SCAN, *marks(1), GIVER, *marks(2), TAKER], "after 2.0000000000 was resolved"),
        ([*SCAN, *marks(1), GIVER, TAKER, row(1, 900, 4, 3), *marks(3)], r"versions \[3\] never arrived"),
        (
            [*SCAN, *marks(1), row(1, 900, 2, 2, partition=0), TAKER, *marks(2)],
            "received on two partitions: (1 and 0|0 and 1)",
        ),
        ([*SCAN, *marks(1), GIVER, TAKER, *marks(2)[:3]], "1 rows are above|2 rows are above"),
        ([*SCAN, *marks(1)[:3]], r"\('closed', 1\)"),
        ([*SCAN, *marks(1)], "2 rows of accounts differ"),
    ],
    ids=["lost", "torn", "late", "gap", "moved", "not covered", "no mark", "unfinished"],
)
def test_what_a_sink_could_do_wrong_is_found(
    judge: Callable[[list[Sent]], int], history: list[Sent], finding: str
) -> None:
    with pytest.raises(AssertionError, match=finding):
        judge(history)
