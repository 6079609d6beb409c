"""A consumer that looks at a sink again and again while the changefeed runs, and in the end reads all of it anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cdc_conformance.validators import All, SeenMark, SeenRow, Validator
from cdc_conformance.validators.feeding import events

from cdc_core import Decoder, SinkReader, StoredMessage, TableSchema

__all__ = ["NemesisConsumer"]


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
