from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_kafka.destination import KafkaDestination
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.producer_config import client_properties, producer_properties

from cdc_core import ConfigError, OptionError, SinkContext, parse_options

OWNER = "sink 'kafka'"
EVERY_ENTRY = (
    '{"Flush": {"Messages": 1000, "Bytes": 5000, "Frequency": "250ms", "MaxMessages": 400, "MaxBytes": 70000},'
    ' "RequiredAcks": "ALL", "Version": "2.8.0.0", "ClientID": "abc.def_1-2", "Compression": "ZSTD",'
    ' "CompressionLevel": 2}'
)


def parsed(values: dict[str, Any]) -> KafkaOptions:
    return parse_options(KafkaOptions, values, owner=OWNER)


def properties(values: dict[str, Any]) -> dict[str, Any]:
    options = parsed(values)
    return client_properties("kafka://broker:9092", options, changefeed="my feed") | producer_properties(options)


def test_the_defaults_are_the_safe_ones() -> None:
    found = properties({})
    assert found["enable.idempotence"] is True
    assert found["enable.gapless.guarantee"] is True
    assert found["acks"] == "all"
    assert found["message.timeout.ms"] == 0
    assert found["partitioner"] == "murmur2"
    assert found["security.protocol"] == "plaintext"
    assert found["client.id"] == "cdc-my-feed"
    assert found["message.max.bytes"] == 256 * 1024 * 1024
    assert found["queue.buffering.max.kbytes"] == 64 * 1024


def test_every_entry_of_kafka_sink_config_sets_a_property() -> None:
    found = properties({"kafka_sink_config": EVERY_ENTRY})
    assert found["batch.num.messages"] == 400
    assert found["batch.size"] == 5000
    assert found["linger.ms"] == 250
    assert found["message.max.bytes"] == 70_000
    assert found["acks"] == "all"
    assert found["broker.version.fallback"] == "2.8.0"
    assert found["client.id"] == "abc.def_1-2"
    assert found["compression.type"] == "zstd"
    assert found["compression.level"] == 3


@pytest.mark.parametrize(("written", "linger_ms"), [({}, 50), ({"Frequency": "0s"}, 0), ({"Frequency": "1s"}, 1000)])
def test_frequency_sets_how_long_a_batch_waits(written: dict[str, Any], linger_ms: int) -> None:
    assert properties({"kafka_sink_config": {"Flush": written}})["linger.ms"] == linger_ms


@pytest.mark.parametrize("written", [{"Flush": {"MaxMessages": 7}}, {"Flush.MaxMessages": 7}])
def test_entries_may_be_tables_or_dotted_names(written: dict[str, Any]) -> None:
    assert properties({"kafka_sink_config": written})["batch.num.messages"] == 7
    assert properties({"kafka_sink_config.Flush.MaxMessages": 7})["batch.num.messages"] == 7


@pytest.mark.parametrize("acks", ["ONE", "none"])
def test_without_idempotence_batches_are_sent_one_at_a_time(acks: str) -> None:
    found = properties({"kafka_sink_config": {"RequiredAcks": acks}})
    assert found["enable.idempotence"] is False
    assert "enable.gapless.guarantee" not in found
    assert found["max.in.flight.requests.per.connection"] == 1


@pytest.mark.parametrize(
    ("compression", "level", "property_"),
    [
        *(("GZIP", level, level) for level in (-1, 0, 9)),
        ("ZSTD", 1, 1),
        ("ZSTD", 4, 11),
        ("LZ4", 0, 0),
        ("LZ4", 512, 1),
        ("LZ4", 131072, 9),
    ],
)
def test_compression_levels_are_those_of_cockroachdb(compression: str, level: int, property_: int) -> None:
    config = {"Compression": compression, "CompressionLevel": level}
    assert properties({"kafka_sink_config": config})["compression.level"] == property_


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"Compresion": "GZIP"}, "has no option 'Compresion'; did you mean 'Compression'?"),
        ({"Compression": "BZIP"}, "option 'Compression' is 'BZIP': must be one of none, gzip, snappy, lz4, zstd"),
        (
            {"Compression": "GZIP", "CompressionLevel": -2},
            "'CompressionLevel' -2 (Huffman only) is not supported by librdkafka",
        ),
        ({"Compression": "GZIP", "CompressionLevel": 10}, "'CompressionLevel' of GZIP must be from -1 to 9"),
        ({"Compression": "ZSTD", "CompressionLevel": 5}, "'CompressionLevel' of ZSTD must be from 1 to 4"),
        ({"Compression": "LZ4", "CompressionLevel": 1000}, "must be 0 or a power of two from 512 to 131072"),
        ({"Compression": "SNAPPY", "CompressionLevel": 1}, "has no effect with 'Compression' SNAPPY; remove it"),
        ({"ClientID": "a b"}, "'ClientID' may contain only letters, digits and . _ -"),
        ({"Version": "new"}, "'Version' is 'new'; write a version such as 1.0.0 or 0.11.0.0"),
        ({"Version": "0.10.2.0"}, "brokers before 0.11 are not supported"),
        ({"Flush": {"Messages": 5, "Frequency": "0s"}}, "'Flush.Frequency' is 0, so batches would not wait"),
        ({"Flush": {"Bytes": -5}}, "'Flush.Bytes' must not be negative"),
        ({"Flush": {"MaxBytes": 5}}, "'Flush.MaxBytes' must be from 1000 to 1000000000"),
        ({"Flush": 5}, "option 'Flush': must be a table of names and values"),
        ("{", "must be a table of names and values, or a JSON object"),
    ],
)
def test_a_wrong_kafka_sink_config_is_refused_in_one_sentence(config: Any, reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        parsed({"kafka_sink_config": config})
    text = str(refused.value)
    assert text.startswith("sink 'kafka': option 'kafka_sink_config'")
    assert reason in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"topic_partitions": "0"}, "sink 'kafka': option 'topic_partitions' must be at least 1, or -1"),
        (
            {"topic_replication_factor": "0"},
            "sink 'kafka': option 'topic_replication_factor' must be at least 1, or -1",
        ),
        ({"flush_timeout": "0s"}, "sink 'kafka': option 'flush_timeout' must be more than 0"),
        ({"buffer_size": "1KB"}, "sink 'kafka': option 'buffer_size' must be at least 64KB"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        parsed(values)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "written",
    [
        {"librdkafka": {"socket.timeout.ms": 500}},
        {"librdkafka": {"socket": {"timeout": {"ms": 500}}}},
        {"librdkafka.socket.timeout.ms": 500},
    ],
)
def test_other_librdkafka_properties_are_passed_on(written: dict[str, Any]) -> None:
    assert properties(written)["socket.timeout.ms"] == 500


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("acks", "kafka_sink_config, 'RequiredAcks'"),
        ("enable.idempotence", "kafka_sink_config, 'RequiredAcks'"),
        ("enable.gapless.guarantee", "kafka_sink_config, 'RequiredAcks'"),
        ("message.timeout.ms", "flush_timeout"),
        ("sasl.password", "sasl_password"),
        ("partitioner", "partition_alg"),
        ("bootstrap.servers", "the sink's URI"),
    ],
)
def test_a_property_that_an_option_sets_cannot_be_set_directly(name: str, option: str) -> None:
    with pytest.raises(ConfigError) as refused:
        properties({"librdkafka": {name: "x"}})
    assert str(refused.value) == f"sink 'kafka': the property '{name}' cannot be set under 'librdkafka'; use {option}"


@pytest.mark.parametrize(
    "name",
    ["transactional.id", "retries", "delivery.report.only.error", "queuing.strategy", "log_level", "on_delivery"],
)
def test_properties_that_would_break_the_guarantees_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"the property '{name}' cannot be set: "):
        properties({"librdkafka": {name: "1"}})


def test_the_longest_call_is_one_that_no_broker_answers() -> None:
    encoder: Any = None
    options = parsed({"flush_timeout": "30s"})
    context = SinkContext(
        changefeed="t", epoch=1, uri="kafka://broker:9092", options=options, encoder=encoder, tables=()
    )
    assert KafkaDestination(context).longest_call_s() == 40.0
