"""Feeds the messages of a sink's reader, decoded, to validators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenMark, SeenRow, Validator, key_of, place_text
from cdc_core import DecodedRow, Decoder, Endpoint, StoredMessage, TableSchema, Timestamp


@dataclass(slots=True)
class Arrived:
    """The number of rows and resolved marks that arrived, by topic (without its prefix) and partition."""

    rows: Counter[Endpoint] = field(default_factory=Counter)
    marks: Counter[Endpoint] = field(default_factory=Counter)


def validate(
    messages: Iterable[StoredMessage],
    decoder: Decoder,
    schemas: Mapping[str, TableSchema],
    validators: Iterable[Validator],
    *,
    prefix: str = "",
) -> Arrived:
    """Feed *messages*, in the order in which a consumer gets them, to *validators*; return the number of events.

    *schemas* holds the present schema of each topic's table. The validators, and *schemas*, use topics without their
    *prefix*. Raises: ValueError, with the place, for a message that is neither a mark nor a row with key and `updated`,
    and for an unknown topic.
    """
    validators = tuple(validators)
    arrived = Arrived()
    for event in events(messages, decoder, schemas, prefix=prefix):
        if isinstance(event, SeenMark):
            arrived.marks[event.endpoint] += 1
            for validator in validators:
                validator.note_resolved(event)
        else:
            arrived.rows[event.topic, event.partition] += 1
            for validator in validators:
                validator.note_row(event)
    return arrived


def events(
    messages: Iterable[StoredMessage], decoder: Decoder, schemas: Mapping[str, TableSchema], *, prefix: str = ""
) -> Iterator[SeenRow | SeenMark]:
    """Yield the events that `validate` feeds."""
    for message in messages:
        place = place_text(message.topic, message.partition)
        topic = None if message.topic is None else _without(prefix, message.topic, place)
        resolved = _resolved(decoder, message)
        if resolved is not None:
            yield SeenMark(topic=topic, partition=message.partition, resolved=resolved)
            continue
        if topic is None:
            raise ValueError(f"{place}: a message without a topic must be a resolved mark, not {_start(message.value)}")
        if topic not in schemas:
            raise ValueError(f"{place}: no table of the changefeed has this topic; the topics are {sorted(schemas)}")
        if decoder.context.output == "files":
            rows = decoder.file(schemas[topic], message.value or b"")
        else:
            rows = [decoder.message(schemas[topic], message.key, message.value)]
        for row in rows:
            yield _seen(row, topic, message.partition, place, prefix)


def _resolved(decoder: Decoder, message: StoredMessage) -> Timestamp | None:
    """Return the timestamp of a mark, None for other messages. Files of rows may not even be decodable as a mark."""
    if message.key is not None:
        return None
    try:
        return decoder.resolved(message.value)
    except ValueError:
        if decoder.context.output == "files" and message.topic is not None:
            return None
        raise


def _seen(row: DecodedRow, topic: str, partition: int | None, place: str, prefix: str) -> SeenRow:
    if row.key is None:
        raise ValueError(f"{place}: a row has no key; set the option key_in_value")
    if row.updated is None:
        raise ValueError(f"{place}: the row with key {row.key} has no 'updated'; set the option updated")
    return SeenRow(
        topic=topic,
        partition=partition,
        key=key_of(row.key),
        after=row.after,
        before=row.before,
        updated=row.updated,
        mvcc=row.mvcc,
        key_in_value=None if row.key_in_value is None else key_of(row.key_in_value),
        topic_in_value=None if row.topic_in_value is None else _inside(prefix, row.topic_in_value),
    )


def _without(prefix: str, topic: str, place: str) -> str:
    if not topic.startswith(prefix):
        raise ValueError(f"{place}: does not begin with the prefix {prefix}")
    return topic.removeprefix(prefix)


def _inside(prefix: str, topic: str) -> str:
    """Return the topic in a value, without its prefix. Without the prefix, return a text that is not a topic."""
    return topic.removeprefix(prefix) if topic.startswith(prefix) else f"{topic}, without the prefix {prefix}"


def _start(value: bytes | None) -> str:
    return "a tombstone" if value is None else repr(value[:80])
