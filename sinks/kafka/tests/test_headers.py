from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from cdc_sink_kafka.headers import Headers
from cdc_sink_kafka.options import KafkaOptions
from cdc_testing.kafka_rig import KafkaRig
from cdc_testing.kafka_rows import JSON, TEXT, rows

from cdc_core import (
    Column,
    ConfigError,
    EncodeError,
    MessageBatch,
    RowBatch,
    TerminalSinkError,
    Timestamp,
    unavailable_column,
)


def test_extra_headers_are_on_every_message(kafka: KafkaRig) -> None:
    options = {"extra_headers": '{"origin": "shop", "a": "\N{SNOWMAN}"}', "topic_partitions": "1"}
    sink = kafka.sink(options)
    sink.emit(rows([1, 2]))
    sink.flush()
    kafka.resolved_sink(options).emit_resolved(Timestamp(9))
    wanted = (("origin", b"shop"), ("a", "\N{SNOWMAN}".encode()))
    assert [message.headers for message in kafka.received()] == [wanted, wanted, wanted]


def test_headers_can_hold_the_table_and_the_commit_timestamp(kafka: KafkaRig) -> None:
    sink = kafka.sink({"header_table": "table", "header_updated": "at", "topic_partitions": "1"})
    sink.emit(rows([1, 2], walls=[70, 80]))
    sink.flush()
    assert [message.headers for message in kafka.received()] == [
        (("table", b"shop.public.orders"), ("at", b"70.0000000000")),
        (("table", b"shop.public.orders"), ("at", b"80.0000000000")),
    ]


def test_a_header_with_the_table_alone_is_on_every_message(kafka: KafkaRig) -> None:
    sink = kafka.sink({"header_table": "table"})
    sink.emit(rows(range(50)))
    sink.flush()
    assert {message.headers for message in kafka.received()} == {(("table", b"shop.public.orders"),)}


def test_a_column_of_json_becomes_headers_and_leaves_the_message(kafka: KafkaRig) -> None:
    texts = [
        '{"a": "x", "n": 1.50, "t": true, "z": null, "o": {"k": [1.10, "q", null]}}',
        None,
        "null",
        "{}",
        '{"b": ""}',
    ]
    sink = kafka.sink({"headers_json_column_name": "meta", "topic_partitions": "1"})
    sink.emit(rows(range(5), extra={"meta": (JSON, texts)}))
    sink.flush()
    messages = kafka.received()
    assert [message.headers for message in messages] == [
        (("a", b"x"), ("n", b"1.50"), ("t", b"true"), ("z", None), ("o", b'{"k": [1.10, "q", null]}')),
        (),
        (),
        (),
        (("b", b""),),
    ]
    assert [set(json.loads(message.value or b"")) for message in messages] == [{"id", "text", "wall"}] * 5


def test_a_delete_has_the_headers_of_the_row_before_it_if_known(kafka: KafkaRig) -> None:
    sink = kafka.sink({"headers_json_column_name": "meta", "topic_partitions": "1"})
    meta = {"meta": (JSON, ['{"a": "1"}', '{"a": "2"}'])}
    sink.emit(rows([1, 2], extra=meta, deleted=[2], before=True))
    sink.emit(rows([3, 4], extra=meta, deleted=[4]))
    sink.flush()
    messages = kafka.received()
    assert [message.headers for message in messages] == [(("a", b"1"),), (("a", b"2"),), (("a", b"1"),), ()]
    assert [message.value is None for message in messages] == [False, True, False, True]


@pytest.mark.parametrize(
    ("extra", "option", "sentence"),
    [
        (
            {},
            "meta",
            "table public.orders has no column 'meta', which the option headers_json_column_name names; add the"
            " column, or use a separate changefeed for the table",
        ),
        (
            {"meta": (TEXT, ["{}"])},
            "meta",
            "column meta of table public.orders has the type text, but only JSON can hold headers; change the type, "
            "or the option headers_json_column_name",
        ),
        (
            {"meta": (JSON, ["[1]"])},
            "meta",
            "column meta of table public.orders, which headers_json_column_name names, does not hold a JSON object in"
            " the row with key {'id': 1}; correct the row, or name another column",
        ),
        ({}, "id", "column id of table public.orders is part of the key, so it cannot hold headers"),
    ],
)
def test_a_column_that_cannot_hold_headers_is_refused_before_and_during_a_run(
    extra: dict[str, Any], option: str, sentence: str, kafka: KafkaRig
) -> None:
    options = {"headers_json_column_name": option}
    batch = rows([1], extra=extra)
    of_one_row = "does not hold a JSON object" in sentence
    if not of_one_row:
        with pytest.raises(ConfigError) as before:
            kafka.at("").destination(options).payload(batch.schema)
        assert str(before.value) == sentence
    with pytest.raises(EncodeError if of_one_row else TerminalSinkError) as refused:
        kafka.sink(options).emit(batch)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("lacking", [["meta"], ["text", "meta"], ["text"]])
def test_a_row_whose_column_of_headers_is_unavailable_is_refused(lacking: list[str]) -> None:
    batch = rows([7, 8], extra={"meta": (JSON, ["{}", None])})
    masks = {name: np.array([False, True]) for name in lacking}
    batch = RowBatch(schema=batch.schema, batch=batch.batch.append_column("unavailable", unavailable_column(masks)))
    headers = Headers(KafkaOptions(headers_json_column_name="meta"))
    payload = headers.payload(batch)
    assert payload.has_unavailable == ("text" in lacking)
    message = MessageBatch(topic="t", key=payload.column("key"), value=payload.column("key"), updated=None)
    if "meta" not in lacking:
        assert payload.column("unavailable").to_pylist() == [None, ["text"]]
        assert headers.of(batch, message) == [[], []]
        return
    with pytest.raises(EncodeError, match=r"column meta .* is unavailable in the row with key \{'id': 8\}") as refused:
        headers.of(batch, message)
    assert refused.value.row == 1


@pytest.mark.parametrize(
    "text", ['{"a\\u0000b": "x"}', '{"\\ud800": "x"}', '{"a": "\\udc00"}', '{"a": [{"\\ud800": 1}]}']
)
def test_a_row_with_characters_that_a_header_cannot_contain_is_named(text: str, kafka: KafkaRig) -> None:
    sink = kafka.sink({"headers_json_column_name": "meta"})
    with pytest.raises(
        EncodeError,
        match=r"has a header with NUL in its name, or with an unpaired surrogate, in the row with key " r"\{'id': 8\}",
    ) as refused:
        sink.emit(rows([7, 8], extra={"meta": (JSON, ["{}", text])}))
    assert refused.value.row == 1


def test_the_name_of_an_extra_header_cannot_contain_nul(kafka: KafkaRig) -> None:
    with pytest.raises(ConfigError, match="has NUL in its name, or an unpaired surrogate"):
        kafka.at("127.0.0.1:1").destination({"extra_headers": {"a\0b": "x"}}).check()


def test_an_extra_header_must_be_text(kafka: KafkaRig) -> None:
    with pytest.raises(ConfigError, match="the header 'n' of extra_headers must be a string, not 5"):
        kafka.at("127.0.0.1:1").destination({"extra_headers": {"n": 5}}).check()


def test_equal_schemas_become_one_schema_without_the_column() -> None:
    headers = Headers(KafkaOptions(headers_json_column_name="meta"))
    batches = [rows([1], extra={"meta": (JSON, ["{}"])}) for _ in range(3)]
    first, *others = [headers.payload(batch).schema for batch in batches]
    assert all(other is first for other in others)
    assert [column.name for column in first.columns] == ["id", "text"]
    assert isinstance(first.columns[0], Column)
