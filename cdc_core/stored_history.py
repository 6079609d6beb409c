"""Stored histories: the files that a sink has recorded, from which every row can be read exactly once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.envelope import Envelope
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a history, with rows of one version of one table. Picklable; opens nothing.

    `mark` is the first resolved mark that covers the file. The rows have `updated` from `lower` to `upper`, inclusive,
    which may be above `mark`. Rows that were replayed from the dead letters may be below earlier marks.
    """

    path: str
    """The path relative to the root of the history."""
    table: TableName
    topic: str
    schema_version: int
    schema_path: str
    """The path, relative to the root, of the file that contains this file's `FileShape`."""
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
    """Everything needed to decode a file: the version of the table, and how its rows were encoded."""

    schema: TableSchema
    format: str
    envelope: Envelope
    options: Mapping[str, Any]
    """The encoder's options as a user would write them, without secrets."""


class StoredHistory(ABC):
    """Reads what a sink has recorded at *uri* for one changefeed. Picklable; constructors connect to nothing.

    *uri* has no parameters, and *options* is an instance of the sink's registered options class. *changefeed* is an
    entry of `changefeeds()`, or the name that an entry begins with; it may be empty if there is only one. The history
    contains only files that a resolved mark covers, and no leftovers of crashed steps.

    Raises, everywhere: ConfigError if there is no history, or if there are several and none is chosen; RetryableError
    if the place is unreachable.
    """

    def __init__(self, uri: str, options: Any, *, changefeed: str = "") -> None:
        self.uri = uri
        self.options = options
        self.changefeed = changefeed

    @abstractmethod
    def changefeeds(self) -> Sequence[str]:
        """Return the changefeeds that have recorded files here, each with its identity: `name.0123456789ab`."""

    @abstractmethod
    def marks(self) -> Sequence[Timestamp]:
        """Return all current resolved marks, in ascending order."""

    @abstractmethod
    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        """Yield each file once that marks up to *upto* cover and that may contain rows in (*after*, *upto*].

        *upto* is a mark. Files of marks above *after* are included even if their rows are older: such rows were
        replayed from the dead letters. Rows of a key are in the order of the files, and in order within each file.
        Raises: HistoryLostError when there is a gap between *after* and *upto*.
        """

    @abstractmethod
    def shape(self, file: StoredFile) -> FileShape:
        """Return how to decode *file*. Raises: HistoryLostError when this information is missing or damaged."""

    @abstractmethod
    def body(self, file: StoredFile) -> bytes:
        """Return the body of the file, decompressed if the sink compressed it.

        Raises: HistoryLostError when the file is missing or differs from what was recorded.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections. May be called twice."""
