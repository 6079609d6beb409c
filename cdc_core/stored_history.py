"""Stored histories: what a sink has kept, file by file, so that every row can be read exactly once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.envelope import Envelope
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["FileShape", "StoredFile", "StoredHistory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a history, of one table in one version. Picklable; opens nothing.

    `mark` is the resolved mark that first covered the file. Its rows have `updated` from `lower` to `upper`, both
    included; they may be above `mark`, and rows that were sent again from the dead letters below the marks before it.
    """

    path: str
    """Below the root of the history."""
    table: TableName
    topic: str
    schema_version: int
    schema_path: str
    """Where the history keeps the file's `FileShape`, below the root."""
    format: str
    """Name of the encoder that wrote the file."""
    rows: int
    bytes: int
    checksum: str
    """`algorithm:hexadecimal digits`, of the file as it is stored."""
    lower: Timestamp
    upper: Timestamp
    mark: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """All that is needed to decode a file: the version of the table, and how its rows were encoded."""

    schema: TableSchema
    format: str
    envelope: Envelope
    options: Mapping[str, Any]
    """The encoder's options as a user would write them, without secrets."""


class StoredHistory(ABC):
    """Reads what a sink has recorded at *uri*, of one changefeed. Picklable; constructors connect to nothing.

    *uri* comes without its parameters, *options* is an instance of the sink's registered options class. *changefeed* is
    one of `changefeeds()` or the name that it begins with; it may be empty where there is but one. Only what a resolved
    mark covers is there: what a crashed step has left behind is not.

    Raises, everywhere: ConfigError when there is no history, or several and none of them is chosen; RetryableError when
    the place is out of reach.
    """

    def __init__(self, uri: str, options: Any, *, changefeed: str = "") -> None:
        self.uri = uri
        self.options = options
        self.changefeed = changefeed

    @abstractmethod
    def changefeeds(self) -> Sequence[str]:
        """Return the changefeeds that have written here, each with its identity: `name.0123456789ab`."""

    @abstractmethod
    def marks(self) -> Sequence[Timestamp]:
        """Return every resolved mark that is there by now, ascending."""

    @abstractmethod
    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        """Yield, each once, the files covered by marks up to *upto*, a mark, that may hold rows in (*after*, *upto*].

        Also those of marks above *after* whose rows are older: they came late, from the dead letters.
        Rows of a key are in the order of the files, and within each. Raises: HistoryLostError when there is a gap
        between *after* and *upto*.
        """

    @abstractmethod
    def shape(self, file: StoredFile) -> FileShape:
        """Return how *file* is to be decoded. Raises: HistoryLostError when that is gone or damaged."""

    @abstractmethod
    def body(self, file: StoredFile) -> bytes:
        """Return the file's body, decompressed where the sink compressed it.

        Raises: HistoryLostError when the file is gone or is not what was recorded.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. May be called twice."""
