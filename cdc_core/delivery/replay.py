"""Replay of dead letters: finding their rows at their sink, and delivering them in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import pyarrow as pa

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.decoder import Decoder
from cdc_core.delivery.dead_letters import BLOCKED, BadRow, BlockedKeys, dead_letter_schema, row_of
from cdc_core.delivery.delivery import BadRows, Delivery
from cdc_core.delivery.routing import Routing
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.rows import RowBatch
from cdc_core.sink import Flushed, Sink, SliceInfo
from cdc_core.sink_reader import SinkReader, StoredMessage
from cdc_core.store.progress import DeadLetter
from cdc_core.telemetry.stages import QUERY, SOURCE
from cdc_core.timestamp import Timestamp

Identity = tuple[str, str, Timestamp]

_BATCH_ROWS = 1000
_BATCH_BYTES = 4 * 1024 * 1024
"""At most so much in a batch, unless one row is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """A dead letter's row with its entries in the progress store: several when it was refused more than once."""

    row: RowBatch
    letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome of a replay: rows in `sent` are durable at the sink, rows in `kept` were refused or must wait."""

    sent: tuple[WaitingRow, ...]
    kept: tuple[BadRow, ...]
    flushed: Flushed


class DeadLetterReader:
    """Finds the rows of dead letters of *feed*, through the reader that their sink registers.

    Raises: ConfigError when there is none; OptionError, PluginLoadError.
    """

    def __init__(self, feed: ResolvedChangefeed) -> None:
        assert feed.dead_letter is not None
        self._name = feed.name
        self._feed = feed.dead_letter
        self._schema = dead_letter_schema(feed.name)
        self._place = self._feed.shown_destination
        sink, encoder = self._feed.sink, self._feed.encoder
        for owner, target in ((sink.owner, sink.registration.reader), (encoder.owner, encoder.registration.decoder)):
            if not target:
                raise ConfigError(
                    f"changefeed '{feed.name}': its dead letters cannot be read back, because {owner} has no reader;"
                    " choose another dead_letter, such as file:///data/dead"
                )
        self._reader = sink.load("reader", SinkReader)
        self._decoder = encoder.load("decoder", Decoder)

    def find(self, letters: Sequence[DeadLetter]) -> list[WaitingRow]:
        """Return the rows of *letters* that are found, each once. Raises: ConfigError; what the reader raises.

        Several rows of a key may have one `updated`. No more of them are returned than *letters* has, the last ones:
        the others come from a step that was never saved, and came again with other content.
        """
        wanted: dict[Identity, list[DeadLetter]] = {}
        for letter in letters:
            wanted.setdefault((letter.table, letter.key, letter.updated), []).append(letter)
        found: dict[Identity, dict[bytes, RowBatch]] = {}
        for row in self._rows():
            bad = BadRow(row=row, stage="", reason="")
            identity = bad.table, bad.key, bad.updated
            if identity in wanted:
                same = found.setdefault(identity, {})
                content = hashlib.sha256(row.to_ipc()).digest()
                same.pop(content, None)
                same[content] = row
        return [row for identity, same in found.items() for row in _waiting(list(same.values()), wanted[identity])]

    def _rows(self) -> Iterator[RowBatch]:
        decoder: Decoder = self._decoder(Parts(self._feed).encoder_context())
        with closing(Parts(self._feed).open_destination()) as destination:
            topic = destination.topic(self._schema.name)
        with closing(self._reader(Parts(self._feed).sink_context())) as reader:
            for message in reader.read():
                if message.topic == topic and message.value is not None:
                    try:
                        yield from map(row_of, self._letters(decoder, message))
                    except ValueError as error:
                        raise ConfigError(
                            f"changefeed '{self._name}': topic '{topic}' at {self._place} holds messages that are not"
                            f" its dead letters ({error}); move those messages elsewhere"
                        ) from error

    def _letters(self, decoder: Decoder, message: StoredMessage) -> Iterator[Mapping[str, object]]:
        assert message.value is not None
        if self._feed.output == "files":
            decoded = decoder.file(self._schema, message.value)
        else:
            decoded = [decoder.message(self._schema, message.key, message.value)]
        return (letter.after or {} for letter in decoded)


def waiting_rows(feed: ResolvedChangefeed, letters: Sequence[DeadLetter]) -> Sequence[WaitingRow]:
    """Return the rows of *letters*. Raises: ConfigError when *feed* does not say where they are; as the reader."""
    if feed.dead_letter is None:
        raise ConfigError(
            f"changefeed '{feed.name}' has {counted(len(letters), 'dead letter')}, but no option 'dead_letter'; set it"
            " to the sink that has them, and set on_error = 'dead_letter'"
        )
    return DeadLetterReader(feed).find(letters)


def send_again(
    sink: Sink, rows: Iterable[WaitingRow], *, feed: ResolvedChangefeed, slice_: SliceInfo, routing: Routing
) -> Replay:
    """Deliver *rows* to *sink* as *slice_*, those of a key in the order of `updated`; durable on return.

    *routing* puts those apart that have topics.

    With dead_letter_order = 'block_key', rows of a key after one that is refused again are kept as well. Raises:
    whatever the sink raises about anything but rows.

    A row that was too large to be read, or that the query failed for, is kept, as its letter lacks values: the source
    has to be read again for them.
    """
    kept = _Kept(block_key=feed.options.dead_letter_order == "block_key")
    whole = []
    for each in sorted(rows, key=lambda each: (each.letters[0].table, each.letters[0].updated)):
        incomplete = next((letter for letter in each.letters if letter.stage in (SOURCE, QUERY)), None)
        if incomplete is not None:
            kept.add(BadRow(row=each.row, stage=incomplete.stage, reason=incomplete.error))
        else:
            whole.append(each)
    delivery = Delivery(sink, kept, owner=feed.sink.owner, refuses_rows=feed.sink.registration.refuses_rows)
    delivery.begin(slice_)
    for batch in _batches([each.row for each in whole]):
        for part in routing.parted(batch):
            if isinstance(part, BadRow):
                kept.add(part)
            else:
                delivery.emit(part)
    flushed = delivery.flush()
    stay = {(bad.table, bad.key, bad.updated) for bad in kept.rows}
    first = [each.letters[0] for each in whole]
    sent = [
        each
        for each, letter in zip(whole, first, strict=True)
        if (letter.table, letter.key, letter.updated) not in stay
    ]
    return Replay(sent=tuple(sent), kept=tuple(kept.rows), flushed=flushed)


def _waiting(rows: Sequence[RowBatch], letters: Sequence[DeadLetter]) -> Iterator[WaitingRow]:
    """Yield the last of *rows*, as many as there are *letters*, in order; each letter goes to one of them."""
    rows = rows[-len(letters) :]
    for index, row in enumerate(rows):
        last = index == len(rows) - 1
        yield WaitingRow(row=row, letters=tuple(letters[index:] if last else letters[index : index + 1]))


class _Kept(BadRows):
    """Rows that stay dead letters."""

    def __init__(self, *, block_key: bool) -> None:
        self.rows: list[BadRow] = []
        self._block_key = block_key
        self._keys = BlockedKeys()

    def add(self, bad: BadRow) -> None:
        self.rows.append(bad)
        if self._block_key and bad.stage != BLOCKED:
            self._keys.add(bad.table, bad.key)

    def blocked(self, rows: RowBatch) -> Sequence[int]:
        return self._keys.find(rows)


def _batches(rows: Sequence[RowBatch]) -> Iterator[RowBatch]:
    """Yield *rows*, of one row each, as batches: neighbours of one version of a table together."""
    for schema, group in groupby(rows, key=attrgetter("schema")):
        for _, same in groupby(group, key=lambda row: row.batch.schema):
            waiting: list[pa.RecordBatch] = []
            size = 0
            for row in same:
                if waiting and (len(waiting) == _BATCH_ROWS or size + row.nbytes > _BATCH_BYTES):
                    yield RowBatch(schema=schema, batch=pa.concat_batches(waiting))
                    waiting, size = [], 0
                waiting.append(row.batch)
                size += row.nbytes
            yield RowBatch(schema=schema, batch=pa.concat_batches(waiting))
