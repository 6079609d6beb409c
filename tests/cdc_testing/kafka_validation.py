"""Feeds what a consumer of Kafka read to the validators, whatever the messages are encoded with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_conformance.validators import SeenMark, SeenRow, Validator
from cdc_testing.kafka_reading import Message

from cdc_core import Timestamp

__all__ = ["Arrived", "Decode", "DecodedRow", "decode_json", "validate_kafka"]


@dataclass(frozen=True, slots=True)
class DecodedRow:
    """A wrapped message of a row."""

    key: tuple[Any, ...]
    after: Mapping[str, Any] | None
    updated: Timestamp


Decode = Callable[[Message], DecodedRow | Timestamp]
"""What a message is: a row, or a resolved mark."""


@dataclass(slots=True)
class Arrived:
    """How many rows and resolved marks came, by topic (without its prefix) and partition."""

    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    marks: Counter[tuple[str, int]] = field(default_factory=Counter)


def validate_kafka(
    messages: Iterable[Message], validators: Iterable[Validator], *, prefix: str = "", decode: Decode | None = None
) -> Arrived:
    """Feed *messages*, in the order in which a consumer got them, to *validators*, and return how many there were.

    Topics are told to the validators without their *prefix*. *decode* is by default that of wrapped JSON with
    `updated`. Raises: AssertionError for a message that is neither a row nor a mark, or of a topic without the prefix.
    """
    decode = decode or decode_json
    validators = tuple(validators)
    arrived = Arrived()
    for message in messages:
        assert message.topic.startswith(prefix), f"topic {message.topic} does not begin with {prefix}"
        topic = message.topic.removeprefix(prefix)
        place = (topic, message.partition)
        event = decode(message)
        if isinstance(event, Timestamp):
            arrived.marks[place] += 1
            for validator in validators:
                validator.note_resolved(SeenMark(topic=topic, partition=message.partition, resolved=event))
        else:
            arrived.rows[place] += 1
            row = SeenRow(
                topic=topic, partition=message.partition, key=event.key, after=event.after, updated=event.updated
            )
            for validator in validators:
                validator.note_row(row)
    return arrived


def decode_json(message: Message) -> DecodedRow | Timestamp:
    """Return what a JSON message of the wrapped envelope is; marks are those without a key."""
    assert message.value is not None, f"a tombstone is no wrapped message: {message}"
    value = json.loads(message.value)
    if message.key is None:
        assert value.keys() == {"resolved"}, f"a message without a key is no resolved mark: {message}"
        return Timestamp.parse(value["resolved"])
    return DecodedRow(tuple(json.loads(message.key)), value["after"], Timestamp.parse(value["updated"]))
