"""The partition of each key, compared with formulas that are written here from their definitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows

from cdc_core import ConfigError, EncoderContext, Envelope


def signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def murmur2(key: bytes) -> int:
    """Return the hash of Kafka's Java client, org.apache.kafka.common.utils.Utils.murmur2, as an unsigned number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little")
        k = (k * m) & mask
        k ^= k >> 24
        k = (k * m) & mask
        h = (h * m) & mask ^ k
    rest = key[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    return h ^ (h >> 15)


def fnv1a(key: bytes) -> int:
    h = 0x811C9DC5
    for byte in key:
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def java_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def cockroach_partition(key: bytes, partitions: int) -> int:
    value = signed(fnv1a(key))
    return abs(value) % partitions  # the sign of Go's remainder is dropped


@pytest.mark.parametrize(
    ("text", "value"), [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)]
)
def test_the_formula_gives_the_known_hashes_of_the_java_client(text: str, value: int) -> None:
    assert signed(murmur2(text.encode())) == value


@pytest.mark.parametrize(
    ("algorithm", "formula", "hashed"),
    [("murmur2", java_partition, murmur2), ("fnv-1a", cockroach_partition, fnv1a)],
)
def test_a_key_goes_to_the_partition_of_its_hash(
    algorithm: str, formula: Callable[[bytes, int], int], hashed: Callable[[bytes], int], kafka: KafkaRig
) -> None:
    sink = kafka.sink({"topic_partitions": "7", "partition_alg": algorithm})
    sink.emit(rows([10**power * 7 + number for power in range(12) for number in range(100)]))
    sink.flush()
    found = [(message.key or b"", message.partition) for message in kafka.received()]
    negative = [key for key, _ in found if signed(hashed(key)) < 0]
    assert len(found) == 1200
    assert 400 < len(negative) < 800
    assert [partition for _, partition in found] == [formula(key, 7) for key, _ in found]


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
        with pytest.raises(ConfigError, match="tombstones_on_delete with key_column 'text' would remove other rows"):
            destination.check()
