"""The messages that a changefeed would send, as its sink would get them; nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.decoder import DecodedRow, Decoder
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.routing import Routing
from cdc_core.destination import Destination
from cdc_core.encoder import Encoder
from cdc_core.engine.temporary_run import TemporaryRun, temporary
from cdc_core.errors import ConfigError, EncodeError
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import TableSchema
from cdc_core.telemetry.stages import ENCODE
from cdc_core.timestamp import Timestamp
from cdc_core.watching.evaluation import evaluation_of

_FILES = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """A message, a row of a file, or a row that has none.

    `value` is text: what the sink would get, or what the encoder's decoder makes of it if that is not text, which
    `decoded` says. None is a tombstone. The topic of a row that has none is empty where a query gives topics.
    """

    topic: str
    key: str | None
    value: str | None
    headers: Mapping[str, str | None] | None = None
    decoded: bool = False
    error: str | None = None
    """Why the row cannot be delivered; then there is no message."""


def preview(feed: ResolvedChangefeed, *, rows: int, live: bool) -> Generator[Previewed]:
    """Yield the messages of *rows* rows: of the rows that the tables hold, or with *live* of the next changes.

    Connects to the source and to what the encoder asks, such as a schema registry, not to the destination. Creates
    nothing that remains. Resolved marks are left out. Raises: ConfigError; the source's errors.
    """
    if live and feed.encoder.registration.scans_only:
        raise ConfigError(f"format '{feed.encoder.name}' cannot represent changes; remove --live")
    # With 'only' itself, the encoder could refuse options that the changefeed has.
    options = replace(feed.options, initial_scan="no" if live else "yes", end_time=None)
    options = options if live else replace(options, cursor=None)
    feed = temporary(replace(feed, options=options, min_checkpoint_frequency_s=0.0, dead_letter=None))
    return _previewed(feed, rows, live=live)


def _previewed(feed: ResolvedChangefeed, count: int, *, live: bool) -> Generator[Previewed]:
    left = count
    with evaluation_of(feed) as evaluation:
        messages = _Messages(feed)
        run = TemporaryRun(feed, evaluation=evaluation, check=messages.check, scans_only=not live)
        with closing(run.items()) as items:
            for item in items:
                if isinstance(item, Timestamp):
                    continue
                if isinstance(item, BadRow):
                    if live or len(_scanned(item.row)):
                        yield messages.of_bad_row(item)
                        left -= 1
                else:
                    taken = (item if live else _scanned(item)).slice(0, left)
                    yield from messages.of(taken)
                    left -= len(taken)
                if left <= 0:
                    return


def _scanned(rows: RowBatch) -> RowBatch:
    """Return those of *rows* that the tables held, without the changes that came during the scan."""
    return replace(rows, batch=rows.batch.filter(pc.equal(rows.column("op"), pa.scalar(Op.SCAN, pa.uint8()))))


class _Messages:
    """Makes messages of rows in the way of the changefeed's sink, which is not opened."""

    def __init__(self, feed: ResolvedChangefeed) -> None:
        self._feed = feed
        self._context = replace(Parts(feed).encoder_context(), preview=True)
        self._encoder: Encoder = feed.encoder.load("encoder", Encoder)(self._context)
        self._decoder: Decoder | None = None
        self._routing = Routing(lambda _: None)  # the destination, which may refuse a topic, is not asked
        self._destination = self._opened(feed)

    def check(self, schemas: Sequence[TableSchema]) -> None:
        feed = self._feed
        feed = feed.for_attempt(feed_id=feed.feed_id, epoch=1, table_names=[schema.name for schema in schemas])
        self._destination = destination = self._opened(feed)
        self._encoder.check([(destination.payload(schema), destination.topic(schema.name)) for schema in schemas])

    def of(self, rows: RowBatch) -> Iterator[Previewed]:
        """Yield what is sent for *rows*; a row that is refused does not affect the others."""
        if not len(rows):
            return
        if self._feed.routes and len(rows) > 1:  # each row may have another topic
            for index in range(len(rows)):
                yield from self.of(rows.slice(index, 1))
            return
        if self._feed.routes:
            (routed,) = self._routing.parted(rows)
            if isinstance(routed, BadRow):
                yield self.of_bad_row(routed)
                return
        try:
            found = list(self._of_file(rows) if self._feed.output == _FILES else self._of_messages(rows))
        except EncodeError as error:
            if len(rows) == 1:
                yield self.of_bad_row(BadRow(row=rows, stage=ENCODE, reason=str(error)))
                return
            for index in range(len(rows)):
                yield from self.of(rows.slice(index, 1))
            return
        yield from found

    def of_bad_row(self, bad: BadRow) -> Previewed:
        topic = "" if self._feed.routes else self._destination.topic(bad.row.schema.name)
        return Previewed(topic=topic, key=bad.key, value=None, error=f"{bad} is refused: {bad.shown_reason}")

    def _of_messages(self, rows: RowBatch) -> Iterator[Previewed]:
        batch = self._destination.preview(rows)
        headers = [None] * len(batch) if batch.headers is None else batch.headers.to_pylist()
        schema = self._destination.payload(rows.schema)
        for key, value, mine in zip(batch.key.to_pylist(), batch.value.to_pylist(), headers, strict=True):
            plain = is_text(key) and is_text(value)
            row = None if plain else self._decoding().message(schema, key, value)
            yield Previewed(
                topic=batch.topic,
                key=text_or_hex(key) if row is None else _shown_key(row),
                value=text_or_hex(value) if row is None or value is None else _shown_row(row),
                headers=None if mine is None else {name: text_or_hex(header) for name, header in mine},
                decoded=row is not None,
            )

    def _of_file(self, rows: RowBatch) -> Iterator[Previewed]:
        topic, schema = self._destination.topic_of(rows), rows.schema
        keys = [BadRow(row=rows.slice(index, 1), stage="", reason="").key for index in range(len(rows))]
        bodies = [self._body(rows.slice(index, 1), topic) for index in range(len(rows))]
        for key, body in zip(keys, bodies, strict=True):
            if is_text(body):
                yield Previewed(topic=topic, key=key, value=body.decode().rstrip("\n"))
                continue
            for row in self._decoding().file(schema, body):
                yield Previewed(topic=topic, key=key, value=_shown_row(row), decoded=True)

    def _body(self, row: RowBatch, topic: str) -> bytes:
        body = self._encoder.open_body(topic)
        written = [body.write(row), body.finish()]
        return b"".join(part.to_pybytes() if isinstance(part, pa.Buffer) else part for part in written)

    def _decoding(self) -> Decoder:
        if self._decoder is None:
            if not self._feed.encoder.registration.decoder:
                raise ConfigError(f"format '{self._feed.encoder.name}' has no decoder, so its messages cannot be shown")
            self._decoder = self._feed.encoder.load("decoder", Decoder)(self._context)
        return self._decoder

    def _opened(self, feed: ResolvedChangefeed) -> Destination:
        context = replace(Parts(feed).sink_context(), encoder=self._encoder)
        opened: Destination = feed.sink.load("destination", Destination)(context)
        return opened


def _shown_key(row: DecodedRow) -> str | None:
    return None if row.key is None else _json(list(row.key))


def _shown_row(row: DecodedRow) -> str:
    """Return the parts of a decoded row that the message has, as JSON."""
    parts: dict[str, Any] = {"after": row.after, "before": row.before, "updated": row.updated, "mvcc": row.mvcc}
    parts |= {"key": row.key_in_value, "topic": row.topic_in_value, "unavailable": row.unavailable or None}
    return _json({name: value for name, value in parts.items() if value is not None or name == "after"})


def _json(value: Any) -> str:
    def shown(inner: Any) -> str:
        return str(text_or_hex(inner) if isinstance(inner, bytes) else inner)

    return json.dumps(value, ensure_ascii=False, default=shown)


def text_or_hex(value: bytes | None) -> str | None:
    r"""Return *value* as text; bytes that are none as hexadecimal digits after \x, as PostgreSQL and CockroachDB do."""
    if value is None:
        return None
    return value.decode() if is_text(value) else f"\\x{value.hex()}"


def is_text(value: bytes | None) -> bool:
    """Return whether *value* can be shown as text."""
    try:
        return value is None or "\0" not in value.decode()
    except UnicodeDecodeError:
        return False
