"""Everything that watches a nemesis run: the sink's reader, the encoder's decoder, and all validators that fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from cdc_conformance.validators import (
    All,
    BeforeAfterValidator,
    CompletenessValidator,
    CountValidator,
    FingerprintValidator,
    KeyInValueValidator,
    MvccValidator,
    OrderValidator,
    PrefixValidator,
    ResolvedValidator,
    Row,
    SeenMark,
    SeenRow,
    TopicValidator,
    Validator,
)
from cdc_conformance.validators.feeding import events
from cdc_testing.nemesis_keys import ById, PresentKeyValidator, Rescanned, RescanValidator
from cdc_testing.nemesis_ledger import FirstNames, Ledger, Projected, RowValidator, Without

from cdc_core import Decoder, SinkReader, StoredMessage, TableSchema, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import EncoderRegistration
from cdc_core.sink_registration import SinkRegistration


class Watch:
    """Looks at the sink of *feed*. With *exact* the ledger knows when each transaction was committed."""

    def __init__(
        self, feed: ResolvedChangefeed, host: PluginHost, *, prefix: str, exact: bool, guests: Sequence[str] = ()
    ) -> None:
        self._feed = feed
        self._exact = exact
        self._prefix = prefix
        self._started = 0
        self._rescans: list[Rescanned] = []
        with closing(Parts(feed).open_destination()) as destination:
            later = [replace(feed.table_names[0], table=table) for table in guests]
            names = [*feed.table_names, *later]
            topics = {name.table: destination.topic(name).removeprefix(prefix) for name in names}
            self._guests = {topics[table] for table in guests}
            self._reader = _reader(host, feed.sink.name, destination.context)
        self.ledger = Ledger(topics)
        self._schemas: Mapping[str, TableSchema] = {}
        self.look_at_schemas()
        self.consumer = NemesisConsumer(
            self._reader, _decoder(host, feed), lambda: self._schemas, self._validators, prefix=prefix
        )

    def look_at_schemas(self) -> None:
        """Take note of the tables' shapes. After each change of them."""
        with closing(Parts(self._feed).open_rangefeed()) as rangefeed:
            schemas = {schema.name.table: schema for schema in rangefeed.schemas()}
        found = {topic: schemas[table] for table, topic in self.ledger.topics.items() if table in schemas}
        self._schemas = {**self._schemas, **found}

    def begun(self) -> None:
        """The changefeed has begun: from here on every version must arrive."""
        self._started = len(self.ledger.commits)

    def rescanned(self, table: str, *, below: int | None, began: Timestamp) -> None:
        """A rescan is complete."""
        self._rescans.append(Rescanned(topic=self.ledger.topics[table], below=below, began=began))

    def close(self) -> None:
        self._reader.close()

    def _validators(self, all_arrived: bool) -> Sequence[Validator]:
        envelope, commits = self._feed.envelope(), self.ledger.commits
        endpoints = [
            (topic if topic is None else topic.removeprefix(self._prefix), partition)
            for topic, partition in self._reader.endpoints()
        ]
        as_of = self._as_of if self._exact else None
        by_id: list[Validator] = [
            Projected(BeforeAfterValidator(as_of, diff=envelope.diff, backfills=True)),
            Projected(
                # the rows of a table that joins are those of the moment at which it was read
                PrefixValidator(commits, endpoints=endpoints, every_timestamp=not self._guests, whole=all_arrived)
            ),
        ]
        if self._exact:
            whole = FingerprintValidator(self.ledger.whole_state_at, endpoints=endpoints)
            by_id.append(FirstNames(whole, self.ledger))
        if all_arrived:
            stays = [[change for change in commit if change[0] not in self._guests] for commit in commits]
            complete = CompletenessValidator(stays, started=self._started)
            by_id.append(Projected(Without(complete, self._guests)))
        found: list[Validator] = [
            OrderValidator(),
            TopicValidator(set(self.ledger.topics.values()), in_value=envelope.topic_in_value),
            RowValidator(self.ledger),
            PresentKeyValidator(self.ledger.keys_at, lambda _: (), endpoints),
            ById(All(by_id), endpoints),
        ]
        if envelope.mvcc_timestamp:
            found.append(MvccValidator())
        if envelope.key_in_value:
            found.append(KeyInValueValidator())
        if all_arrived:
            found += [
                RescanValidator(self._rescans, endpoints),
                ResolvedValidator(endpoints, each=False),
                CountValidator(least_rows=1, least_marks=1),
            ]
        return found

    def _as_of(self, topic: str, key: tuple[Any, ...], timestamp: Timestamp) -> Row | None:
        return self.ledger.state_at(timestamp)[topic].get(key)


def _reader(host: PluginHost, name: str, context: Any) -> SinkReader:
    registration = host.component("sink", name)
    assert isinstance(registration, SinkRegistration)
    reader: SinkReader = load_class(registration.reader, owner=f"reader of {name}", base=SinkReader)(context)
    return reader


def _decoder(host: PluginHost, feed: ResolvedChangefeed) -> Decoder:
    registration = host.component("encoder", feed.encoder.name)
    assert isinstance(registration, EncoderRegistration)
    cls = load_class(registration.decoder, owner=f"decoder of {feed.encoder.name}", base=Decoder)
    decoder: Decoder = cls(Parts(feed).open_encoder().context)
    return decoder


class NemesisConsumer:
    """Feeds what is new to validators as it appears.

    *make* gives new validators, told whether all must have arrived; it is first called when there may be something.
    """

    def __init__(
        self,
        reader: SinkReader,
        decoder: Decoder,
        schemas: Callable[[], Mapping[str, TableSchema]],
        make: Callable[[bool], Sequence[Validator]],
        *,
        prefix: str = "",
    ) -> None:
        self.rows = 0
        self.marks = 0
        self._reader = reader
        self._decoder = decoder
        self._schemas = schemas
        self._make = make
        self._prefix = prefix
        self._live: All | None = None
        self._seen: Counter[StoredMessage] = Counter()
        self._known: set[tuple[object, ...]] = set()
        self._failures: list[str] = []

    def look(self) -> None:
        """Take what has appeared.

        A listing is no snapshot: a mark that it has may stand for rows that it lacks. So a mark counts when it was
        there before the listing whose rows are looked at.
        """
        if self._live is None:
            self._live = All(self._make(False))
        marked = Counter(message for message in self._reader.read() if self._is_mark(message))
        left = self._seen.copy()
        new: list[tuple[StoredMessage, bool]] = []
        for message in self._reader.read():
            if left[message] > 0:
                left[message] -= 1
                if message.topic is None:  # a mark that was seen: what stands before it must be old
                    new = [(one, True) for one, _ in new]
            elif not self._is_mark(message) or marked[message] > self._seen[message]:
                new.append((message, False))
        for message, covered in new:
            self._seen[message] += 1
            self._take(message, covered=covered)

    def failures(self) -> list[str]:
        """Return what was wrong so far."""
        return self._failures + (self._live.failures() if self._live is not None else [])

    def final_failures(self) -> list[str]:
        """Return what is wrong for a consumer who comes now and reads all, in order."""
        fresh = All(self._make(True))
        for event in self._events(self._reader.read()):
            _feed(fresh, event)
        return fresh.failures()

    def _take(self, message: StoredMessage, *, covered: bool) -> None:
        assert self._live is not None
        for event in self._events([message]):
            if isinstance(event, SeenRow):
                version = event.topic, event.key, event.updated
                if covered and version not in self._known:
                    self._failures.append(
                        f"{event.place} at {event.updated}: appeared in a file before a resolved one that was there"
                    )
                self._known.add(version)
                self.rows += 1
            else:
                self.marks += 1
            _feed(self._live, event)

    def _events(self, messages: Iterable[StoredMessage]) -> Iterator[SeenRow | SeenMark]:
        return events(messages, self._decoder, self._schemas(), prefix=self._prefix)

    def _is_mark(self, message: StoredMessage) -> bool:
        if message.topic is not None and self._decoder.context.output == "files":
            return False
        return message.key is None and self._decoder.resolved(message.value) is not None


def _feed(validators: All, event: SeenRow | SeenMark) -> None:
    if isinstance(event, SeenMark):
        validators.note_resolved(event)
    else:
        validators.note_row(event)
