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
from cdc_sink_webhook.batches import Batches
from cdc_sink_webhook.bodies import CSV, JSON, Values
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.sink_config import FlushConfig

from cdc_core import ContractError, Encoder, MessageBatch, RowBatch

Rows = Callable[..., RowBatch]


class Cutter:
    """Batches and an encoder before them."""

    def __init__(self, encoder: Encoder, **changes: Any) -> None:
        fields: dict[str, Any] = {"format": JSON, "compression": "none", "feed": "feed", "limit": 1 << 20}
        flush = {name: changes.pop(name) for name in ("Messages", "Bytes", "Frequency") if name in changes}
        if flush:
            flush.setdefault("Frequency", 60.0)
        self.batches = Batches(FlushConfig(**flush), **(fields | changes))
        self._encoder = encoder
        self._rows = 0

    def add(self, rows: RowBatch) -> list[Request]:
        messages = self._encoder.encode(rows, topic=rows.schema.name.table)
        found = list(self.batches.add(rows, messages, first=self._rows))
        self._rows += len(rows)
        return found

    def all(self, *batches: RowBatch) -> list[Request]:
        return [*chain.from_iterable(map(self.add, batches)), *self.batches.rest()]


@pytest.fixture
def cutter(encoder: Encoder) -> Callable[..., Cutter]:
    return lambda **changes: Cutter(encoder, **changes)


def ids(request: Request) -> list[int]:
    payload = json.loads(request.body)
    assert payload["length"] == len(payload["payload"]) == len(request.places)
    return [message["key"][0] for message in payload["payload"]]


def test_every_message_has_a_request_of_its_own_by_default(cutter: Callable[..., Cutter], rows: Rows) -> None:
    found = cutter().add(rows([1, 2, 3]))
    assert [ids(request) for request in found] == [[1], [2], [3]]
    assert found[0].body == b'{"payload":[{"key": [1], "note": "x", "topic": "orders", "wall": 1}],"length":1}'


def test_a_batch_ends_with_so_many_messages(cutter: Callable[..., Cutter], rows: Rows) -> None:
    cut = cutter(Messages=3)
    assert [ids(request) for request in cut.add(rows([1, 2]))] == []
    assert [ids(request) for request in cut.add(rows([3, 4, 5, 6, 7]))] == [[1, 2, 3], [4, 5, 6]]
    assert [ids(request) for request in cut.batches.rest()] == [[7]]


def test_a_batch_ends_when_its_bytes_are_reached(cutter: Callable[..., Cutter], rows: Rows) -> None:
    found = cutter(Bytes=150).all(rows(range(5)), rows([5], notes=["n" * 500]), rows([6]))
    assert [ids(request) for request in found] == [[0, 1, 2], [3, 4, 5], [6]]


def test_whichever_is_reached_first_ends_a_batch(cutter: Callable[..., Cutter], rows: Rows) -> None:
    found = cutter(Bytes=300, Messages=2).all(rows([1, 2, 3], notes=["a", "b", "n" * 500]), rows([4]))
    assert [ids(request) for request in found] == [[1, 2], [3], [4]]


def test_without_limits_a_batch_takes_no_more_than_memory_allows(cutter: Callable[..., Cutter], rows: Rows) -> None:
    found = cutter(Frequency=1.0, limit=1000).all(rows(range(40)))
    assert len(found) > 2
    assert max(len(request.body) for request in found) < 1200


def test_batches_are_of_one_topic_each(cutter: Callable[..., Cutter], rows: Rows, users: Any) -> None:
    found = cutter(Messages=2).all(rows([1]), rows([1], schema=users), rows([2]), rows([2, 3], schema=users))
    assert [(request.topic, ids(request)) for request in found] == [
        ("orders", [1, 2]),
        ("users", [1, 2]),
        ("users", [3]),
    ]
    assert [request.places.tolist() for request in found] == [[0, 2], [1, 3], [4]]


def test_what_is_not_full_is_due_after_its_time(cutter: Callable[..., Cutter], rows: Rows) -> None:
    late, soon = cutter(Messages=5), cutter(Messages=5, Frequency=1e-9)
    for cut in (late, soon):
        assert cut.batches.due_at is None
        cut.add(rows([1]))
        assert cut.batches.due_at is not None
    assert [ids(request) for request in late.batches.due()] == []
    assert [ids(request) for request in soon.batches.due()] == [[1]]
    assert soon.batches.due_at is None


def test_the_same_rows_have_the_same_identity_however_they_came(cutter: Callable[..., Cutter], rows: Rows) -> None:
    whole = cutter(Messages=4).all(rows([1, 2, 3, 4]))
    batch = rows([1, 2, 3, 4])
    parts = cutter(Messages=4).all(batch.slice(0, 1), batch.slice(1, 2), batch.slice(3))
    assert [(request.id, request.body) for request in whole] == [(request.id, request.body) for request in parts]


def test_another_version_of_a_row_has_another_identity_though_it_looks_the_same(
    cutter: Callable[..., Cutter], rows: Rows, timeless: Encoder
) -> None:
    first, second = (Cutter(timeless).add(rows([1], wall=wall))[0] for wall in (1, 2))
    assert first.body == second.body
    assert first.id != second.id


def test_another_changefeed_and_another_topic_have_other_identities(
    cutter: Callable[..., Cutter], rows: Rows, users: Any
) -> None:
    found = [
        *cutter().add(rows([1])),
        *cutter(feed="other").add(rows([1])),
        *cutter().add(rows([1], schema=users)),
        cutter().batches.mark(b'{"resolved":"1.0"}'),
        cutter().batches.mark(b'{"resolved":"2.0"}'),
    ]
    assert len({request.id for request in found}) == len(found)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_halves_have_all_rows_between_them(cutter: Callable[..., Cutter], rows: Rows, compression: str) -> None:
    opened: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "gzip": gzip.decompress,
        "zstd": zstandard.ZstdDecompressor().decompress,
    }
    cut = cutter(Messages=5, compression=compression)
    (whole,) = cut.all(rows([1, 2, 3, 4, 5], notes=["ä", "b,c", '"]', "", "e"]))
    left, right = cut.batches.halves(whole)
    payloads = [json.loads(opened[compression](request.body))["payload"] for request in (whole, left, right)]
    assert payloads[0] == payloads[1] + payloads[2]
    assert (left.places.tolist(), right.places.tolist()) == ([0, 1], [2, 3, 4])
    assert len({whole.id, left.id, right.id}) == 3
    assert [half.id for half in cut.batches.halves(whole)] == [left.id, right.id]
    (third, _) = cut.batches.halves(right)
    assert third.places.tolist() == [2]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_the_same_rows_give_the_same_compressed_bytes(
    cutter: Callable[..., Cutter], rows: Rows, compression: str
) -> None:
    first, second = (cutter(Messages=9, compression=compression).all(rows(range(5))) for _ in range(2))
    assert first[0].body == second[0].body


def test_a_tombstone_is_the_encoders_fault() -> None:
    with pytest.raises(ContractError, match="tombstone"):
        Values.of(pa.array([b"a", None], pa.large_binary()), b",")


@pytest.mark.parametrize("end", ["", "\n"])
def test_rows_of_csv_are_one_body_of_lines(lines: Encoder, rows: Rows, end: str) -> None:
    class Ended(type(lines)):  # type: ignore[misc]
        def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
            messages: MessageBatch = super().encode(rows, topic=topic)
            values = [value.rstrip(b"\n") + end.encode() for value in messages.value.to_pylist()]
            return replace(messages, value=pa.array(values, pa.large_binary()))

    cut = Cutter(Ended(lines.context), format=CSV, Messages=3)
    whole, rest = cut.all(rows([1, 2, 3, 4], notes=["a", "b", "c", "d"]))
    assert (whole.body, rest.body) == (b"1,a\n2,b\n3,c\n", b"4,d\n")
    assert len(whole.keys) == 3  # no message has a key, but every row has
    assert [half.body for half in cut.batches.halves(whole)] == [b"1,a\n", b"2,b\n3,c\n"]
