"""The Kafka sink alone, from Arrow rows to acknowledged messages, compared with a bare loop over encoded messages.

Both produce the same keys and values to the same topic of one real broker, in this process, with producers that have
the same properties and stay open. They take turns several times, and the figure compares the medians, so that noise
affects both.

The measured time begins with the first call and ends when every message is acknowledged. The sink starts with Arrow
rows and encodes keys and values as JSON. The bare loop is written as well as possible: it passes chunks of messages to
`produce_batch`, counts failures with one delivery callback (`delivery.report.only.error`), repeats the rest of a chunk
when the queue is full, and calls `flush` at the end. Its messages, dicts included, exist beforehand, so only the client
is measured. A second loop has keys and values as lists of bytes and creates the dicts within the measured time, as any
real program must.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.bench_encode import encoder
from benchmarks.context import Bench
from benchmarks.report import Figure, Target
from benchmarks.rows import BATCH_ROWS, SCHEMA, batches_of, row_batch, sink_context, write_slice
from benchmarks.timing import take_turns
from cdc_sink_kafka.destination import KafkaDestination
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.producer_config import client_properties, producer_properties
from cdc_sink_kafka.sink import KafkaSink
from confluent_kafka import KafkaError, Producer

from cdc_core import RowBatch

_CHUNK = 10_000
_QUEUE_FULL = KafkaError._QUEUE_FULL

Messages = list[dict[str, Any]]


def run(bench: Bench) -> Iterator[Figure]:
    count = max(1, bench.sizes.part_rows // BATCH_ROWS)
    whole = row_batch(count * BATCH_ROWS)
    batches = batches_of(whole)
    context = sink_context(f"kafka://{bench.broker.bootstrap_servers}", KafkaOptions(), encoder())
    destination = KafkaDestination(context)
    destination.prepare()
    topic = destination.topic(SCHEMA.name)
    sink = KafkaSink(context)
    keys, values = _encoded(batches, topic)
    ready = _messages(keys, values)
    bare = _BareLoop(f"kafka://{bench.broker.bootstrap_servers}", topic)
    try:
        turns = take_turns(
            {
                "sink": lambda: write_slice(sink, batches),
                "bare": lambda: bare.produce(ready),
                "dicts": lambda: bare.produce_pairs(keys, values),
            }
        )
    finally:
        sink.close()
        bench.delete_topics(topic)
    rates = {name: [len(whole) / turn.elapsed_s for turn in taken] for name, taken in turns.items()}
    medians = {name: statistics.median(values) for name, values in rates.items()}
    details = {
        "rounds": rates,
        "cpu_us_per_row": {
            name: statistics.median(turn.cpu_s for turn in taken) / len(whole) * 1e6 for name, taken in turns.items()
        },
        "message_bytes": sum(map(len, values)) / len(values) + sum(map(len, keys)) / len(keys),
    }
    name = "part: Kafka sink, Arrow rows to acknowledged messages"
    yield Figure(
        name=name,
        value=medians["sink"],
        unit="rows/s",
        peer=medians["bare"],
        peer_name="produce_batch",
        target=Target(per_peer=0.6),
        details=details,
    )
    yield Figure(
        name=f"{name}, beside a loop that makes its dicts",
        value=medians["sink"],
        unit="rows/s",
        peer=medians["dicts"],
        peer_name="produce_batch",
    )


class _BareLoop:
    """The sink's producer without the sink."""

    def __init__(self, uri: str, topic: str) -> None:
        options = KafkaOptions()
        properties = {**client_properties(uri, options, changefeed="bare"), **producer_properties(options)}
        self._producer = Producer({**properties, "log_level": 3, "on_delivery": self._on_delivery})
        self._topic = topic
        self._failed = 0

    def produce(self, messages: Messages) -> None:
        for start in range(0, len(messages), _CHUNK):
            self._send(messages[start : start + _CHUNK])
        self._flush()

    def produce_pairs(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        for start in range(0, len(keys), _CHUNK):
            self._send(_messages(keys[start : start + _CHUNK], values[start : start + _CHUNK]))
        self._flush()

    def _send(self, messages: Messages) -> None:
        while queued := self._producer.produce_batch(self._topic, messages) - len(messages):
            messages = messages[queued:]
            assert all(message.pop("_error").code() == _QUEUE_FULL for message in messages)
            self._producer.poll(0.01)
        self._producer.poll(0)

    def _flush(self) -> None:
        left = self._producer.flush()
        assert not left
        assert not self._failed

    def _on_delivery(self, error: KafkaError | None, _: Any) -> None:
        self._failed += error is not None


def _encoded(batches: Sequence[RowBatch], topic: str) -> tuple[list[bytes], list[bytes]]:
    keys: list[bytes] = []
    values: list[bytes] = []
    for batch in batches:
        encoded = encoder().encode(batch, topic=topic)
        keys += encoded.key.to_pylist()
        values += encoded.value.to_pylist()
    return keys, values


def _messages(keys: Sequence[bytes], values: Sequence[bytes]) -> Messages:
    return [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
