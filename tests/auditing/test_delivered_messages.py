"""Messages as rows of the table's present version, whatever wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cdc_testing.local_engine import resolved_feed

from cdc_core import (
    Column,
    ColumnType,
    ConfigError,
    Endpoint,
    HistoryLostError,
    Kind,
    StoredMessage,
    TableName,
    TableSchema,
    Timestamp,
)
from cdc_core.auditing.delivered import DeliveredMessages

INT = ColumnType(kind=Kind.INT, source="integer", bits=32)
TEXT = ColumnType(kind=Kind.STRING, source="text")
T = TableSchema(
    name=TableName("d", "s", "t"),
    version=3,
    columns=(
        Column(name="id", type=INT, nullable=False),
        Column(name="v", type=TEXT),
        Column(name="n", type=INT),
        Column(name="h", type=ColumnType(kind=Kind.JSON, source="jsonb")),
    ),
    primary_key=("id",),
)


class Reader:
    """What a consumer of two partitions reads."""

    def __init__(self, *messages: tuple[int, bytes | None, bytes | None]) -> None:
        self._messages = messages
        self.lost: list[Endpoint] = []

    def read(self) -> Iterator[StoredMessage]:
        for partition, key, value in self._messages:
            yield StoredMessage(topic="t", partition=partition, key=key, value=value)

    def endpoints(self) -> list[Endpoint]:
        return [("t", 0), ("t", 1)]

    def truncated(self) -> list[Endpoint]:
        return self.lost


def delivered(*messages: tuple[int, bytes | None, bytes | None], **options: Any) -> DeliveredMessages:
    feed = resolved_feed("postgresql://u@127.0.0.1:1/d", "kafka://127.0.0.1:1", "t", options=options)
    found = DeliveredMessages(replace(feed, table_names=(T.name,)), [T])
    found._reader = Reader(*messages)  # type: ignore[assignment]
    return found


def rows(found: DeliveredMessages, upto: int = 100) -> list[tuple[Any, ...]]:
    return [
        (row["op"], row["updated"]["wall"], row["after"], row.get("unavailable"))
        for batch in found.rows([T], Timestamp(upto))
        for row in batch.batch.to_pylist()
    ]


def row(after: str, updated: int) -> bytes:
    return f'{{"after": {after}, "updated": "{updated}.0000000000"}}'.encode()


def mark(wall: int) -> bytes:
    return f'{{"resolved":"{wall}.0000000000"}}'.encode()


def test_a_mark_counts_when_every_partition_has_it() -> None:
    found = delivered((0, None, mark(1)), (1, None, mark(1)), (0, None, mark(2)), (0, b"[1]", None), (1, None, mark(3)))
    assert found.marks() == [Timestamp(1)]


def test_rows_are_those_up_to_the_mark_without_marks_and_tombstones() -> None:
    full = '{"h": null, "id": 1, "n": 5, "v": "a"}'
    found = delivered((0, b"[1]", row(full, 5)), (0, None, mark(6)), (0, b"[1]", row("null", 7)), (0, b"[1]", None))
    assert rows(found) == [(1, 5, {"id": 1, "v": "a", "n": 5, "h": None}, None), (3, 7, None, None)]
    assert len(rows(found, upto=5)) == 1


def test_columns_of_older_versions_are_null_unless_they_may_have_been_renamed() -> None:
    older, renamed = '{"id": 1, "v": "a", "h": null}', '{"id": 2, "v": "b", "m": 5, "h": null}'
    messages = ((0, b"[1]", row(older, 5)), (0, b"[2]", row(renamed, 6)))
    assert [(each["n"], unavailable) for _, _, each, unavailable in rows(delivered(*messages))] == [
        (None, None),
        (None, ["n"]),
    ]
    assert [unavailable for *_, unavailable in rows(delivered(*messages, schema_change_policy="nobackfill"))] == [
        ["n"],
        ["n"],
    ]


def test_columns_that_the_sink_makes_headers_of_are_not_compared() -> None:
    message = (0, b"[1]", row('{"id": 1, "v": "a", "n": 1}', 5))
    found = delivered(message, headers_json_column_name="h")
    assert [unavailable for *_, unavailable in rows(found)] == [["h"]]


def test_values_of_an_earlier_type_are_not_compared() -> None:
    wrong, right = '{"id": 1, "v": "a", "n": 5000000000, "h": null}', '{"id": 2, "v": "b", "n": 6, "h": null}'
    found = delivered((0, b"[1]", row(wrong, 5)), (0, b"[2]", row(right, 6)))
    assert [(each["n"], unavailable) for _, _, each, unavailable in rows(found)] == [(None, ["n"]), (6, None)]


def test_what_cannot_be_placed_or_read_is_an_error() -> None:
    with pytest.raises(ConfigError, match="topic t has messages without a timestamp, from before the option 'updated'"):
        rows(delivered((0, b"[1]", b'{"after": {"id": 1, "v": "a", "n": 1, "h": null}}')))
    with pytest.raises(HistoryLostError, match="a message in topic t cannot be decoded"):
        rows(delivered((0, b"[1]", b'{"after": 5}')))


def test_a_topic_that_lost_its_first_messages_is_refused_whenever_it_lost_them() -> None:
    found = delivered((0, None, mark(1)), (1, None, mark(1)))
    assert found.marks() == [Timestamp(1)]
    reader: Any = found._reader
    reader.lost = [("t", 1)]
    for read in (found.marks, lambda: rows(found)):
        with pytest.raises(ConfigError, match="topic t no longer has its first messages, so an audit cannot tell"):
            read()
