"""Messages whose key is another column than the primary key."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows

from cdc_core import ConfigError, EncoderContext, Envelope


def test_the_column_decides_the_partition_and_values_keep_the_primary_key(kafka: KafkaRig) -> None:
    envelope = Envelope(key_in_value=True, updated=True)
    encoder = JsonEncoder(
        EncoderContext(changefeed="feed", envelope=envelope, options=JsonOptions(), key_column="text")
    )
    sink = kafka.sink({"topic_partitions": "8"}, encoder=encoder)
    towns = ["Rome", "Oslo", None]
    sink.emit(rows(range(60), texts=[towns[number % 3] for number in range(60)], walls=range(60)))
    sink.emit(rows([0, 1], walls=[60, 61], texts=["Oslo", "Oslo"]))
    sink.flush()
    places: dict[bytes | None, set[int]] = {}
    found: dict[bytes | None, list[int]] = {}
    for message in kafka.received():
        places.setdefault(message.key, set()).add(message.partition)
        found.setdefault(message.key, []).extend(json.loads(message.value or b"")["key"])
    assert {key: len(partitions) for key, partitions in places.items()} == {
        b'["Rome"]': 1,
        b'["Oslo"]': 1,
        b"[null]": 1,
    }
    assert found[b'["Oslo"]'] == [*range(1, 60, 3), 0, 1]
    assert sorted(number for numbers in found.values() for number in numbers) == sorted([*range(60), 0, 1])


def test_tombstones_that_would_remove_other_rows_are_refused() -> None:
    encoder = JsonEncoder(
        EncoderContext(changefeed="feed", envelope=Envelope(), options=JsonOptions(), key_column="text")
    )
    with ExitStack() as opened:
        rig = KafkaRig("127.0.0.1:9", "", opened)
        destination = rig.destination({"tombstones_on_delete": "true"}, encoder=encoder)
        with pytest.raises(
            ConfigError, match="tombstones_on_delete with key_column 'text' would remove the other rows"
        ):
            destination.check()
