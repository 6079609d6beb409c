"""Feeds what a sink's reader reads, through an encoder's decoder, to validators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cdc_conformance.validators.events import SeenMark, SeenRow, key_of, place_text
from cdc_conformance.validators.validator import Validator
from cdc_core import DecodedRow, Decoder, Endpoint, StoredMessage, TableSchema, Timestamp

__all__ = ["Arrived", "events", "validate"]


@dataclass(slots=True)
class Arrived:
    """How many rows and resolved marks came, by topic (without its prefix) and partition."""

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
    """Feed *messages*, in the order in which a consumer gets them, to *validators*; return how many events there were.

    *schemas* has the present shape of each topic's table. Topics are told to the validators, and looked up in
    *schemas*, without their *prefix*. Nothing is passed over. Raises: ValueError, naming the place, for what is neither
    a row with its key and `updated` nor a mark, and for a topic that is not in *schemas*.
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
    """Yield what `validate` feeds."""
    for message in messages:
        place = place_text(message.topic, message.partition)
        topic = None if message.topic is None else _without(prefix, message.topic, place)
        resolved = _resolved(decoder, message)
        if resolved is not None:
            yield SeenMark(topic=topic, partition=message.partition, resolved=resolved)
            continue
        if topic is None:
            raise ValueError(f"{place}: what is of no topic must be a resolved mark, not {_start(message.value)}")
        if topic not in schemas:
            raise ValueError(f"{place}: no table of the changefeed has this topic; there are {sorted(schemas)}")
        if decoder.context.output == "files":
            rows = decoder.file(schemas[topic], message.value or b"")
        else:
            rows = [decoder.message(schemas[topic], message.key, message.value)]
        for row in rows:
            yield _seen(row, topic, message.partition, place, prefix)


def _resolved(decoder: Decoder, message: StoredMessage) -> Timestamp | None:
    """Return the mark that *message* is. A keyed message is none; a file of rows may be nothing that a mark can be."""
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
        raise ValueError(
            f"{place}: a row without its key cannot be validated; let the option key_in_value put it there"
        )
    if row.updated is None:
        raise ValueError(f"{place}: the row with key {row.key} has no 'updated'; switch the option updated on")
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
    """Return the topic that a value names; where it lacks the prefix, a text that is no topic."""
    return topic.removeprefix(prefix) if topic.startswith(prefix) else f"{topic}, without the prefix {prefix}"


def _start(value: bytes | None) -> str:
    return "a tombstone" if value is None else repr(value[:80])
