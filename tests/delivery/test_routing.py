"""Rows with topics of their own are put apart, and those whose topic is refused are bad rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from cdc_testing.scripted import TABLE

from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.routing import Routing
from cdc_core.errors import RetryableSinkError
from cdc_core.rows import Op, RowBatch

REFUSED = "topic 'no' is refused"


def rows(topics: Sequence[bytes | None] | None, *, count: int = 0) -> RowBatch:
    """Return rows whose column n counts from 0."""
    numbers = list(range(count if topics is None else len(topics)))
    ids = pa.array(numbers, pa.int64())
    return RowBatch.of(
        TABLE,
        op=pa.array([Op.UPDATE] * len(numbers), pa.uint8()),
        updated=RowBatch.timestamps(ids, pa.array([0] * len(numbers), pa.int32())),
        key=RowBatch.struct(TABLE.key_type, [ids]),
        after=RowBatch.struct(TABLE.after_type, [ids, ids]),
        topic=None if topics is None else pa.array(topics, pa.binary()).view(pa.string()),
    )


def shown(routing: Routing, batch: RowBatch) -> list[tuple[str | None, list[int]] | tuple[str, int, str]]:
    found: list[tuple[str | None, list[int]] | tuple[str, int, str]] = []
    for part in routing.parted(batch):
        if isinstance(part, BadRow):
            found.append((part.stage, part.row.column("after")[0]["n"].as_py(), part.reason))
        else:
            found.append((part.topic, part.column("after").field("n").to_pylist()))
    return found


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def routing(asked: list[str]) -> Routing:
    def admit(topic: str) -> str | None:
        asked.append(topic)
        return REFUSED if topic == "no" else None

    return Routing(admit)


def test_rows_without_topics_are_passed_on_as_they_are(routing: Routing, asked: list[str]) -> None:
    batch = rows(None, count=3)
    assert list(routing.parted(batch)) == [batch]
    assert asked == []


def test_the_rows_of_each_topic_are_together_and_in_order(routing: Routing, asked: list[str]) -> None:
    assert shown(routing, rows([b"a", b"b", b"a", b"c", b"b"])) == [("a", [0, 2]), ("b", [1, 4]), ("c", [3])]
    assert asked == ["a", "b", "c"]
    assert shown(routing, rows([b"a"] * 3)) == [("a", [0, 1, 2])]
    assert shown(routing, rows([])) == [(None, [])]


@pytest.mark.parametrize(
    ("topic", "stage", "reason"),
    [
        (None, "query", "its cdc_topic is null; for a deleted row, only the key and cdc_prev have values"),
        (b"", "query", "its cdc_topic is empty"),
        (b"a\xff", "query", "its cdc_topic, b'a\\xff', is not valid UTF-8"),
        (b"\xed\xa0\x80", "query", "its cdc_topic, b'\\xed\\xa0\\x80', is not valid UTF-8"),
        (b"a\x00", "query", "its cdc_topic, 'a\\x00', contains a NUL character"),
        (b"t" * 1001, "query", "its cdc_topic has 1001 bytes; the maximum is 1000"),
        (b"no", "sink", REFUSED),
    ],
)
def test_a_row_whose_topic_cannot_be_is_bad_between_its_neighbours(
    routing: Routing, topic: bytes | None, stage: str, reason: str
) -> None:
    assert shown(routing, rows([b"a", b"b", topic, b"a", topic])) == [
        ("a", [0]),
        ("b", [1]),
        (stage, 2, reason),
        ("a", [3]),
        (stage, 4, reason),
    ]


def test_trouble_that_may_pass_makes_no_row_bad() -> None:
    def admit(_: str) -> str | None:
        raise RetryableSinkError("leader not available")

    with pytest.raises(RetryableSinkError, match="leader not available"):
        list(Routing(admit).parted(rows([b"a", b"b"])))


def test_a_bad_row_keeps_its_topic_in_its_dead_letter(routing: Routing) -> None:
    found: list[BadRow] = [part for part in routing.parted(rows([b"no", b"a\xff"])) if isinstance(part, BadRow)]
    again = [RowBatch.from_ipc(bad.row.to_ipc()).column("topic").cast(pa.binary()).to_pylist() for bad in found]
    assert again == [[b"no"], [b"a\xff"]]
