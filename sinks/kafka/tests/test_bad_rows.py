"""Rows that the broker refuses: the engine finds them, and all others arrive in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
from cdc_sink_kafka.sink import KafkaSink
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import SmallEncoder, rows, version

from cdc_core import EncoderContext, Envelope, Flushed, MessageBatch, RowBatch, SliceInfo, Timestamp
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.delivery import Delivery

LARGE = "y" * 5000
SLICE = SliceInfo(step=0, index=0, lower=Timestamp(1))


class BadRows:
    """Collects bad rows. No other row waits for them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def add(self, bad: BadRow) -> None:
        self.rows.append((bad.row.column("key")[0].as_py()["id"], bad.reason))

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        del rows
        return ()


class WithoutSomeKeys(SmallEncoder):
    """Encodes rows with a negative id without a key."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        batch = super().encode(rows, topic=topic)
        ids = rows.column("key").field("id").to_pylist()
        keys = [None if number < 0 else key for number, key in zip(ids, batch.key.to_pylist(), strict=True)]
        return dataclasses.replace(batch, key=pa.array(keys, pa.large_binary()))


def deliver(sink: KafkaSink, batches: Sequence[RowBatch]) -> tuple[list[tuple[int, str]], Flushed]:
    bad_rows = BadRows()
    delivery = Delivery(sink, bad_rows, owner="sink 'kafka'", refuses_rows=True)
    delivery.begin(SLICE)
    for batch in batches:
        delivery.emit(batch)
    return bad_rows.rows, delivery.flush()


def test_one_message_too_large_for_its_topic_is_a_bad_row_and_all_others_arrive_in_order(kafka: KafkaRig) -> None:
    kafka.create_topic(2, max_message_bytes="2000")
    ids = [number % 10 for number in range(1000)]
    texts = [LARGE if number == 777 else "x" for number in range(1000)]
    batch = rows(ids, walls=range(1, 1001), texts=texts)
    bad_rows, flushed = deliver(kafka.sink(), [batch.slice(0, 400), batch.slice(400)])
    ((bad, reason),) = bad_rows
    assert bad == 7
    assert reason == (
        "the message of the row with key {'id': 7} of table public.orders has 5037 bytes, more than topic"
        f" '{kafka.topic}' accepts (max.message.bytes = 2000); raise max.message.bytes of the topic, or set Compression"
        " in kafka_sink_config"
    )
    assert flushed.messages == 999
    first_seen: dict[int, list[int]] = {}
    for message in kafka.received():
        key, wall = version(message)
        if wall not in first_seen.setdefault(key, []):
            first_seen[key].append(wall)
    assert all(walls == sorted(walls) for walls in first_seen.values()), "a version first appeared after a newer one"
    assert sum(map(len, first_seen.values())) == 999


def test_a_message_that_the_topic_refuses_for_its_content_is_a_bad_row(kafka: KafkaRig) -> None:
    kafka.create_topic(1, cleanup_policy="compact")
    encoder = WithoutSomeKeys(EncoderContext(changefeed="feed", envelope=Envelope(), options=None))
    bad_rows, flushed = deliver(kafka.sink(encoder=encoder), [rows([*range(50), -1, *range(50, 100)])])
    ((bad, reason),) = bad_rows
    assert bad == -1
    assert "refuses a message because of its content" in reason
    assert "a topic with cleanup.policy=compact accepts no message without a key" in reason
    assert flushed.messages == 100
    assert list(dict.fromkeys(version(message)[0] for message in kafka.received())) == list(range(100))
