"""A consumer that looks while files appear finds what one who reads all in the end cannot see."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest
from cdc_conformance.rows import INT8, table
from cdc_conformance.validators import OrderValidator, Validator
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.nemesis_watch import NemesisConsumer

from cdc_core import EncoderContext, Endpoint, Envelope, SinkContext, SinkReader, StoredMessage, Timestamp

FOO = table("foo", {"id": INT8, "n": INT8})


class Shelf(SinkReader):
    """Gives what a test has put there."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self.seen_before: list[list[StoredMessage]] = []

    @property
    def context(self) -> SinkContext:  # type: ignore[override]
        raise AssertionError("nobody asks")

    def read(self) -> Iterator[StoredMessage]:
        return iter(self.seen_before.pop(0) if self.seen_before else self.messages)

    def endpoints(self) -> Collection[Endpoint]:
        return [(None, None)]

    def close(self) -> None:
        pass


def at(wall: int) -> str:
    return str(Timestamp(wall))


def file(*rows: tuple[int, int]) -> StoredMessage:
    """Return a file of rows, each an id and its time."""
    lines = [{"after": {"id": id_, "n": wall}, "key": [id_], "updated": at(wall)} for id_, wall in rows]
    return StoredMessage(topic="foo", value="".join(json.dumps(line) + "\n" for line in lines).encode())


def mark(wall: int) -> StoredMessage:
    return StoredMessage(topic=None, value=json.dumps({"resolved": at(wall)}).encode())


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def consumer(shelf: Shelf) -> NemesisConsumer:
    context = EncoderContext(
        changefeed="t", envelope=Envelope(updated=True, key_in_value=True), options=JsonOptions(), output="files"
    )

    def validators(all_arrived: bool) -> Sequence[Validator]:
        return [OrderValidator()]

    return NemesisConsumer(shelf, JsonDecoder(context), lambda: {"foo": FOO}, validators)


def look(consumer: NemesisConsumer, shelf: Shelf, *messages: StoredMessage) -> list[Any]:
    shelf.messages = list(messages)
    consumer.look()
    return consumer.failures()


def test_what_appears_in_order_is_all_right(consumer: NemesisConsumer, shelf: Shelf) -> None:
    assert look(consumer, shelf, file((1, 10))) == []
    assert look(consumer, shelf, file((1, 10)), mark(10)) == []
    assert look(consumer, shelf, file((1, 10)), mark(10), file((1, 11), (2, 12)), mark(12)) == []
    assert (consumer.rows, consumer.marks) == (3, 2)
    assert consumer.final_failures() == []


def test_a_new_row_in_a_file_before_a_mark_that_was_there_is_found(consumer: NemesisConsumer, shelf: Shelf) -> None:
    assert look(consumer, shelf, file((1, 10)), mark(10)) == []
    assert look(consumer, shelf, file((1, 10)), file((2, 11)), mark(10)) == [
        "topic foo key [2] at 11.0000000000: appeared in a file before a resolved one that was there"
    ]
    assert consumer.final_failures() == []


def test_a_late_row_is_found_although_its_file_stands_before_the_mark(consumer: NemesisConsumer, shelf: Shelf) -> None:
    assert look(consumer, shelf, file((1, 10)), mark(10)) == []
    failures = look(consumer, shelf, file((2, 9)), file((1, 10)), mark(10))
    assert "topic foo key [2]: saw new row timestamp 9.0000000000 after 10.0000000000 was resolved" in failures


def test_a_repeated_file_before_a_mark_that_was_there_is_all_right(consumer: NemesisConsumer, shelf: Shelf) -> None:
    assert look(consumer, shelf, file((1, 10)), mark(10)) == []
    assert look(consumer, shelf, file((1, 10)), file((1, 10)), mark(10)) == []


def test_a_listing_that_has_a_mark_but_not_yet_its_rows_is_no_failure(consumer: NemesisConsumer, shelf: Shelf) -> None:
    shelf.seen_before = [[], [mark(10)]]
    assert look(consumer, shelf, file((1, 10)), mark(10)) == []
    assert look(consumer, shelf, file((1, 10)), mark(10)) == []
    assert (consumer.rows, consumer.marks) == (1, 1)
