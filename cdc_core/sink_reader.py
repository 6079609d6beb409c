"""Sink readers see what a consumer of a sink sees: for conformance tests and audits, not for hot paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from cdc_core.sink_context import SinkContext

Endpoint = tuple[str | None, int | None]
"""A topic and partition with its own resolved marks. (None, None): all topics share one order and one mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One message as a consumer gets it; for a sink that writes files, one file with its decompressed body.

    `partition` is None where a topic has only one order of messages. `topic` is None for a resolved mark of all topics,
    such as a resolved file. A `value` of None is a tombstone.
    """

    topic: str | None
    partition: int | None = None
    key: bytes | None = None
    value: bytes | None


class SinkReader(ABC):
    """Reads what a sink with the same context has made visible. Constructors connect to nothing.

    A reader returns only what every consumer can see: no temporary files and no open transactions.
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def read(self) -> Iterator[StoredMessage]:
        """Yield everything from the beginning.

        Messages of one partition, rows and resolved marks alike, come in the order in which a consumer gets them, and
        files in the order of their names. Yields nothing if nothing has been written yet. May be called again. Do not
        take the order from an identity column of a database: it counts rows when they are inserted, not when they are
        committed.
        """

    def endpoints(self) -> Collection[Endpoint]:
        """Return every place that must hold each resolved mark, for `context.tables`; by default each table's topic."""
        topics = self.context.topics()
        return {(topics.of(table), None) for table in self.context.tables}

    def truncated(self) -> Collection[Endpoint]:
        """Return the places that no longer have their first messages, because they keep them only for some time.

        An audit refuses such places. By default, there are none, because delivered data stays.
        """
        return ()

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice."""
