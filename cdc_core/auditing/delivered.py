"""What a changefeed has delivered, as its consumers can read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.classes import load_class
from cdc_core.readback.reader import ChangeReader
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.stored_history import StoredHistory
from cdc_core.timestamp import Timestamp

__all__ = ["Delivered", "DeliveredFiles"]


class Delivered(ABC):
    """The marks and rows at a destination. Used by one thread.

    Raises, everywhere: ConfigError and HistoryLostError for what is not there; the client's errors.
    """

    @abstractmethod
    def marks(self) -> Sequence[Timestamp]:
        """Return the resolved marks that every consumer has now, ascending."""

    @abstractmethod
    def rows(self, schemas: Sequence[TableSchema], upto: Timestamp) -> Iterator[RowBatch]:
        """Yield all rows of tables with *schemas* up to the mark *upto*, perhaps with repeats, those of a key in order.

        Rows may have an older version of their schema.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections. May be called twice."""


class DeliveredFiles(Delivered):
    """The files of a sink that keeps a history. Memory: one decoded file."""

    def __init__(self, feed: ResolvedChangefeed) -> None:
        """The files are those of the changefeed with the identity of *feed*, or of its name if it has none."""
        self._reader = ChangeReader(feed.destination, changefeed=_identity(feed), history=_history(feed))

    def marks(self) -> Sequence[Timestamp]:
        return self._reader.marks()

    def rows(self, schemas: Sequence[TableSchema], upto: Timestamp) -> Iterator[RowBatch]:
        wanted = {schema.name for schema in schemas}
        for file in self._reader.files(upto=upto):
            if file.table in wanted:
                yield self._reader.rows(file, upto=upto)

    def close(self) -> None:
        self._reader.close()


def _identity(feed: ResolvedChangefeed) -> str:
    return f"{feed.name}.{feed.feed_id}" if feed.feed_id else feed.name


def _history(feed: ResolvedChangefeed) -> StoredHistory:
    registration = feed.sink.registration
    owner, hint = f"sink '{feed.sink.name}'", registration.install_hint
    history = load_class(registration.history, owner=owner, base=StoredHistory, install_hint=hint)
    opened: StoredHistory = history(feed.destination, feed.sink.parsed(), changefeed=_identity(feed))
    return opened
