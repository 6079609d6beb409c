"""Rows that a query gives a topic: where they arrive, which topics are refused, and that marks follow them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
import pytest
from cdc_sink_kafka.admin import Administrator
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.resolved_sink import KafkaResolvedSink
from cdc_sink_kafka.sink import KafkaSink
from cdc_sink_kafka.topics import Topics
from cdc_testing import kafka_reading
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import rows
from confluent_kafka import KafkaError

from cdc_core import ConfigError, RetryableSinkError, RowBatch, TerminalSinkError, Timestamp, TopicNames

ROUTED = {"routed": True}


def to(topic: str, batch: RowBatch) -> RowBatch:
    """Return *batch* as a sink gets it from a query that gives it *topic*."""
    column = pa.array([topic] * len(batch), pa.string())
    return RowBatch(schema=batch.schema, batch=batch.batch.append_column("topic", column))


@pytest.fixture
def sink(kafka: KafkaRig) -> KafkaSink:
    return kafka.sink(**ROUTED)


def test_rows_arrive_in_the_topic_that_the_query_gave_them_and_in_no_other(kafka: KafkaRig, sink: KafkaSink) -> None:
    assert [sink.admit("a"), sink.admit("b.c")] == [None, None]
    for topic, ids in (("a", [1, 2]), ("b.c", [1]), ("a", [3])):
        sink.emit(to(topic, rows(ids)))
    assert sink.flush().messages == 4
    assert sorted(message.key or b"" for message in kafka.received(f"{kafka.prefix}a")) == [b"[1]", b"[2]", b"[3]"]
    assert [message.key for message in kafka.received(f"{kafka.prefix}b.c")] == [b"[1]"]
    with pytest.raises(Exception, match="UNKNOWN_TOPIC"):
        kafka.received()  # the topic of the table


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("a b", "has a name that Kafka does not allow; it may have letters, digits, '.', '_' and '-'"),
        ("größe", "has a name that Kafka does not allow; it may have letters, digits, '.', '_' and '-'"),
        ("a\n", "has a name that Kafka does not allow; it may have letters, digits, '.', '_' and '-'"),
        (".", "has a name that Kafka does not allow; it may have letters, digits, '.', '_' and '-'"),
        ("..", "has a name that Kafka does not allow; it may have letters, digits, '.', '_' and '-'"),
        ("t" * 250, "has 250 characters, but Kafka allows 249"),
        ("__consumer_offsets", "is internal to Kafka"),
        ("__transaction_state", "is internal to Kafka"),
        ("t" * 249, None),
    ],
)
def test_a_name_that_kafka_never_takes_is_refused_without_a_broker(topic: str, reason: str | None) -> None:
    assert Topics(TopicNames()).refusal(topic) == reason


def test_the_topic_of_the_dead_letters_is_refused(kafka: KafkaRig) -> None:
    sink = kafka.sink(**ROUTED, reserved_topics=frozenset({f"{kafka.prefix}dead"}))
    assert sink.admit("dead") == f"topic '{kafka.prefix}dead', which its cdc_topic names, is that of the dead letters"
    assert sink.admit("deadly") is None


def test_a_name_that_collides_with_another_is_refused_by_the_broker(kafka: KafkaRig, sink: KafkaSink) -> None:
    kafka_reading.create_topic(kafka.address, f"{kafka.prefix}a_b", partitions=1, replication=1, config={})
    assert "is refused by the brokers: Topic '" in str(sink.admit("a.b"))


def test_a_missing_topic_is_refused_where_no_one_creates_it(kafka: KafkaRig) -> None:
    sink = kafka.sink({"create_kafka_topics": "off"}, **ROUTED)
    assert str(sink.admit("a")).endswith("does not exist, and create_kafka_topics is off")
    kafka_reading.create_topic(kafka.address, f"{kafka.prefix}a", partitions=1, replication=1, config={})
    assert sink.admit("a") is None


def test_brokers_that_are_out_of_reach_refuse_no_row(kafka: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_sink_kafka.admin._LIMIT_S", 0.5)
    sink = KafkaSink(kafka.at("127.0.0.1:9").context(**ROUTED))
    with pytest.raises(RetryableSinkError, match="cannot be looked up or created"):
        sink.admit("a")
    sink.close()


CODES = {name: code for name, code in vars(KafkaError).items() if isinstance(code, int) and name.isupper()}
OF_THE_NAME = {"TOPIC_EXCEPTION", "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "POLICY_VIOLATION"}


def test_only_a_fixed_list_of_errors_says_something_of_a_topic() -> None:
    assert len(CODES) > 100
    refusing = set()
    with Administrator({"bootstrap.servers": "127.0.0.1:9"}, KafkaOptions(), running=True) as administrator:
        for name, code in CODES.items():
            try:
                administrator._reason(KafkaError(code), "a")
                refusing.add(name)
            except RetryableSinkError:
                continue
    assert refusing == OF_THE_NAME


@pytest.fixture
def unreached() -> Iterator[KafkaRig]:
    """A rig at brokers that no test of its own may ask."""
    with ExitStack() as opened:
        yield KafkaRig("127.0.0.1:9", "p.", opened)


@pytest.mark.parametrize("where", ["lookup", "creation"])
@pytest.mark.parametrize(
    "name", sorted({"INVALID_REPLICATION_FACTOR", "LEADER_NOT_AVAILABLE", "INVALID_CONFIG", *OF_THE_NAME})
)
def test_only_errors_about_a_topic_end_a_changefeed_that_writes_marks(
    unreached: KafkaRig, monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    error = KafkaError(CODES[name])
    found = error if where == "lookup" else missing
    monkeypatch.setattr(Administrator, "_describe", lambda _, topics, **__: dict.fromkeys(topics, found))
    monkeypatch.setattr(Administrator, "_creation_errors", lambda _, topics, **__: dict.fromkeys(topics, error))
    marks = KafkaResolvedSink(unreached.context(**ROUTED))
    expected = TerminalSinkError if name in OF_THE_NAME else RetryableSinkError
    with pytest.raises(expected, match=r"topic 'p\.a' cannot be"):
        marks.add_topics(["a"])
    monkeypatch.setattr(Administrator, "_describe", lambda *_, **__: {})
    marks.add_topics(["a"])  # what was refused is asked for again


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, None),
        *((name, None) for name in sorted(OF_THE_NAME)),
        ("INVALID_REPLICATION_FACTOR", "cannot be created with these topic_partitions, topic_replication_factor"),
        ("INVALID_CONFIG", "cannot be created with these topic_partitions, topic_replication_factor"),
        ("REQUEST_TIMED_OUT", "sink 'kafka' cannot be checked"),
        ("BROKER_NOT_AVAILABLE", "sink 'kafka' cannot be checked"),
    ],
)
@pytest.mark.parametrize("create", ["explicit", "auto", "off"])
def test_the_settings_of_topics_to_come_are_checked_at_the_start(
    unreached: KafkaRig, monkeypatch: pytest.MonkeyPatch, create: str, name: str | None, told: str | None
) -> None:
    asked: list[tuple[list[str], bool]] = []

    def refuse(_: Administrator, topics: Sequence[str], *, validate_only: bool) -> dict[str, KafkaError]:
        asked.append((list(topics), validate_only))
        return {} if name is None else dict.fromkeys(topics, KafkaError(CODES[name]))

    monkeypatch.setattr(Administrator, "_connect", lambda *_: None)
    monkeypatch.setattr(Administrator, "_creation_errors", refuse)
    destination = unreached.destination({"create_kafka_topics": create}, **ROUTED)
    if told is None or create != "explicit":
        destination.check()
    else:
        with pytest.raises(ConfigError, match=told):
            destination.check()
    assert asked == ([(["p.cdc-check"], True)] if create == "explicit" else [])


def test_a_new_topic_with_a_smaller_limit_gets_smaller_batches(kafka: KafkaRig, sink: KafkaSink) -> None:
    wanted = {"kafka_sink_config": {"Flush": {"Bytes": 60_000, "Frequency": "1s"}}}
    sink = kafka.sink(wanted, **ROUTED)
    sink.admit("large")
    sink.emit(to("large", rows(range(100), texts=["x" * 500] * 100)))
    for name, size in (("small", 20_000), ("medium", 70_000)):
        config = {"max.message.bytes": str(size)}
        kafka_reading.create_topic(kafka.address, f"{kafka.prefix}{name}", partitions=1, replication=1, config=config)
    before = sink._producers.of_rows(traced=False)
    sink.admit("medium")
    sink.emit(to("medium", rows(range(10))))
    assert sink._producers.of_rows(traced=False) is before, "batches of 60,000 bytes are small enough for it"
    sink.admit("small")
    sink.emit(to("small", rows(range(200), texts=["x" * 500] * 200)))
    sink.emit(to("large", rows(range(100, 200))))
    flushed = sink.flush()
    assert (flushed.messages, flushed.refused) == (410, ())
    assert len(kafka.received(f"{kafka.prefix}small")) == 200
    assert len(kafka.received(f"{kafka.prefix}large")) == 200


def test_a_single_message_that_is_too_large_for_its_topic_is_the_refused_row(kafka: KafkaRig, sink: KafkaSink) -> None:
    config = {"max.message.bytes": "2000"}
    kafka_reading.create_topic(kafka.address, f"{kafka.prefix}small", partitions=1, replication=1, config=config)
    sink.admit("small")
    sink.emit(to("small", rows([1, 2], texts=["x", "y" * 5000])))
    with pytest.raises(Exception, match=r"more than topic '.*small' accepts"):
        sink.flush()


def test_marks_reach_every_topic_that_rows_went_to_after_a_restart_too(kafka: KafkaRig, sink: KafkaSink) -> None:
    sink.admit("a")
    sink.emit(to("a", rows([1])))
    sink.flush()
    sink.close()
    marks = kafka.resolved_sink({"topic_partitions": "2"}, **ROUTED)
    marks.add_topics(["a", "b"])  # "b" was saved, and deleted while the changefeed did not run
    marks.emit_resolved(Timestamp(5))
    marks.add_topics(["a", "b", "c"])
    marks.emit_resolved(Timestamp(6))

    def marks_in(topic: str) -> list[tuple[int, bytes | None]]:
        received = kafka.received(f"{kafka.prefix}{topic}")
        return [(message.partition, message.value) for message in received if message.key is None]

    five, six = b'{"resolved":"5.0000000000"}', b'{"resolved":"6.0000000000"}'
    assert marks_in("a") == [(partition, mark) for partition in range(3) for mark in (five, six)]
    assert marks_in("b") == [(0, five), (0, six), (1, five), (1, six)]
    assert marks_in("c") == [(0, six), (1, six)]


def test_a_topic_for_all_tables_has_no_meaning_beside_a_query_that_gives_topics(kafka: KafkaRig) -> None:
    destination = kafka.destination({"topic_name": "all"}, **ROUTED)
    with pytest.raises(ConfigError, match="option 'topic_name' has no effect, because the query gives each row"):
        destination.check()


def test_a_prefix_that_no_topic_can_have_is_refused_at_the_start(unreached: KafkaRig) -> None:
    with pytest.raises(ConfigError, match=r"every topic with topic_prefix 'shop/' has a name that Kafka does not"):
        unreached.destination({"topic_prefix": "shop/"}, **ROUTED).check()


def test_one_connection_serves_every_new_topic(sink: KafkaSink) -> None:
    sink.admit("a")
    first = sink._routed._administrator
    sink.admit("b")
    assert sink._routed._administrator is first
