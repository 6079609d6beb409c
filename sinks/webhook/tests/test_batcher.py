from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from cdc_sink_webhook.batcher import Batcher
from cdc_sink_webhook.bodies import CSV, JSON, Values
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.sink_config import FlushConfig
from cdc_testing.webhook_rig import USERS, CsvEncoder, TimelessEncoder, encoder, rows

from cdc_core import ContractError, Encoder, MessageBatch, RowBatch


class Encoding:
    """A batcher with an encoder in front of it."""

    def __init__(self, encoder: Encoder, **changes: Any) -> None:
        fields: dict[str, Any] = {"format": JSON, "compression": "none", "feed": "feed", "limit": 1 << 20}
        flush = {name: changes.pop(name) for name in ("Messages", "Bytes", "Frequency") if name in changes}
        if flush:
            flush.setdefault("Frequency", 60.0)
        self.batcher = Batcher(FlushConfig(**flush), **(fields | changes))
        self._encoder = encoder
        self._rows = 0

    def add(self, rows: RowBatch) -> list[Request]:
        messages = self._encoder.encode(rows, topic=rows.schema.name.table)
        found = list(self.batcher.add(rows, messages, first=self._rows))
        self._rows += len(rows)
        return found

    def all(self, *batches: RowBatch) -> list[Request]:
        return [*chain.from_iterable(map(self.add, batches)), *self.batcher.rest()]


def new_batching(**changes: Any) -> Encoding:
    return Encoding(encoder(), **changes)


def ids(request: Request) -> list[int]:
    payload = json.loads(request.body)
    assert payload["length"] == len(payload["payload"]) == len(request.row_numbers)
    return [message["key"][0] for message in payload["payload"]]


def test_by_default_each_message_has_its_own_request() -> None:
    found = new_batching().add(rows([1, 2, 3]))
    assert [ids(request) for request in found] == [[1], [2], [3]]
    assert found[0].body == b'{"payload":[{"key": [1], "note": "x", "topic": "orders", "wall": 1}],"length":1}'


def test_a_batch_ends_at_its_limit_of_messages() -> None:
    batching = new_batching(Messages=3)
    assert [ids(request) for request in batching.add(rows([1, 2]))] == []
    assert [ids(request) for request in batching.add(rows([3, 4, 5, 6, 7]))] == [[1, 2, 3], [4, 5, 6]]
    assert [ids(request) for request in batching.batcher.rest()] == [[7]]


def test_a_batch_ends_at_its_limit_of_bytes() -> None:
    found = new_batching(Bytes=150).all(rows(range(5)), rows([5], notes=["n" * 500]), rows([6]))
    assert [ids(request) for request in found] == [[0, 1, 2], [3, 4, 5], [6]]


def test_the_first_limit_that_is_reached_ends_a_batch() -> None:
    found = new_batching(Bytes=300, Messages=2).all(rows([1, 2, 3], notes=["a", "b", "n" * 500]), rows([4]))
    assert [ids(request) for request in found] == [[1, 2], [3], [4]]


def test_a_batch_without_limits_is_bounded_by_memory() -> None:
    found = new_batching(Frequency=1.0, limit=1000).all(rows(range(40)))
    assert len(found) > 2
    assert max(len(request.body) for request in found) < 1200


def test_each_batch_has_one_topic() -> None:
    found = new_batching(Messages=2).all(rows([1]), rows([1], schema=USERS), rows([2]), rows([2, 3], schema=USERS))
    assert [(request.topic, ids(request)) for request in found] == [
        ("orders", [1, 2]),
        ("users", [1, 2]),
        ("users", [3]),
    ]
    assert [request.row_numbers.tolist() for request in found] == [[0, 2], [1, 3], [4]]


def test_an_unfinished_batch_is_due_after_flush_frequency() -> None:
    late, soon = new_batching(Messages=5), new_batching(Messages=5, Frequency=1e-9)
    for batching in (late, soon):
        assert batching.batcher.due_at is None
        batching.add(rows([1]))
        assert batching.batcher.due_at is not None
    assert [ids(request) for request in late.batcher.due()] == []
    assert [ids(request) for request in soon.batcher.due()] == [[1]]
    assert soon.batcher.due_at is None


def test_the_request_id_does_not_depend_on_how_the_rows_arrived() -> None:
    whole = new_batching(Messages=4).all(rows([1, 2, 3, 4]))
    batch = rows([1, 2, 3, 4])
    parts = new_batching(Messages=4).all(batch.slice(0, 1), batch.slice(1, 2), batch.slice(3))
    assert [(request.id, request.body) for request in whole] == [(request.id, request.body) for request in parts]


def test_two_versions_of_a_row_with_equal_messages_have_different_ids() -> None:
    first, second = (Encoding(encoder(TimelessEncoder)).add(rows([1], wall=wall))[0] for wall in (1, 2))
    assert first.body == second.body
    assert first.id != second.id


def test_the_request_id_depends_on_changefeed_and_topic() -> None:
    found = [
        *new_batching().add(rows([1])),
        *new_batching(feed="other").add(rows([1])),
        *new_batching().add(rows([1], schema=USERS)),
        new_batching().batcher.mark(b'{"resolved":"1.0"}'),
        new_batching().batcher.mark(b'{"resolved":"2.0"}'),
    ]
    assert len({request.id for request in found}) == len(found)


def test_the_request_id_depends_on_the_table_where_tables_share_a_topic() -> None:
    batch = rows([1])
    other = RowBatch(schema=replace(batch.schema, name=replace(batch.schema.name, table="returns")), batch=batch.batch)
    one, two = (
        next(
            Batcher(FlushConfig(), format=JSON, compression="none", feed="feed", limit=1 << 20).add(
                each, encoder().encode(each, topic="changes"), first=0
            )
        )
        for each in (batch, other)
    )
    assert one.body == two.body
    assert one.id != two.id


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_two_halves_together_have_all_rows(compression: str) -> None:
    opened: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "gzip": gzip.decompress,
        "zstd": zstandard.ZstdDecompressor().decompress,
    }
    batching = new_batching(Messages=5, compression=compression)
    (whole,) = batching.all(rows([1, 2, 3, 4, 5], notes=["ä", "b,c", '"]', "", "e"]))
    left, right = batching.batcher.halves(whole)
    payloads = [json.loads(opened[compression](request.body))["payload"] for request in (whole, left, right)]
    assert payloads[0] == payloads[1] + payloads[2]
    assert (left.row_numbers.tolist(), right.row_numbers.tolist()) == ([0, 1], [2, 3, 4])
    assert len({whole.id, left.id, right.id}) == 3
    assert [half.id for half in batching.batcher.halves(whole)] == [left.id, right.id]
    (third, _) = batching.batcher.halves(right)
    assert third.row_numbers.tolist() == [2]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compression_is_deterministic(compression: str) -> None:
    first, second = (new_batching(Messages=9, compression=compression).all(rows(range(5))) for _ in range(2))
    assert first[0].body == second[0].body


def test_a_tombstone_breaks_the_encoders_contract() -> None:
    with pytest.raises(ContractError, match="tombstone"):
        Values.of(pa.array([b"a", None], pa.large_binary()), b",")


@pytest.mark.parametrize("end", ["", "\n"])
def test_csv_rows_become_one_body_of_lines(end: str) -> None:
    class Ended(type(encoder(CsvEncoder))):  # type: ignore[misc]
        def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
            messages: MessageBatch = super().encode(rows, topic=topic)
            values = [value.rstrip(b"\n") + end.encode() for value in messages.value.to_pylist()]
            return replace(messages, value=pa.array(values, pa.large_binary()))

    batching = Encoding(Ended(encoder(CsvEncoder).context), format=CSV, Messages=3)
    whole, rest = batching.all(rows([1, 2, 3, 4], notes=["a", "b", "c", "d"]))
    assert (whole.body, rest.body) == (b"1,a\n2,b\n3,c\n", b"4,d\n")
    assert len(whole.keys) == 3  # the messages have no keys, but the rows do
    assert [half.body for half in batching.batcher.halves(whole)] == [b"1,a\n", b"2,b\n3,c\n"]
