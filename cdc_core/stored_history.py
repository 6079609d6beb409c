"""Stored histories: what a sink has kept, file by file, so that every row can be read exactly once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["StoredFile", "StoredHistory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a history, of one table in one version. Picklable; opens nothing.

    `mark` is the resolved mark that first covered the file. Its rows have `updated` from `lower` to `upper`, both
    included; they may be above `mark`.
    """

    path: str
    """Below the root of the history."""
    table: TableName
    schema_version: int
    format: str
    """Name of the encoder that wrote the file."""
    rows: int
    bytes: int
    checksum: str
    lower: Timestamp
    upper: Timestamp
    mark: Timestamp


class StoredHistory(ABC):
    """Reads what a sink has recorded at *uri*, of whatever changefeed. Picklable; constructors connect to nothing.

    *uri* comes without its parameters, *options* is an instance of the sink's registered options class. Only what a
    resolved mark covers is there: what a crashed step has left behind is not.
    """

    def __init__(self, uri: str, options: Any) -> None:
        self.uri = uri
        self.options = options

    @abstractmethod
    def marks(self) -> Sequence[Timestamp]:
        """Return every resolved mark that is there by now, ascending."""

    @abstractmethod
    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        """Yield, each once, the files covered by marks up to *upto* that may hold rows in (*after*, *upto*].

        Rows of a key are in the order of the files, and within each. Raises: CdcError when the history has a gap
        between *after* and *upto*.
        """

    @abstractmethod
    def schema(self, file: StoredFile) -> TableSchema:
        """Return the version of the table that *file* was written with."""

    @abstractmethod
    def body(self, file: StoredFile) -> bytes:
        """Return the file's body, decompressed where the sink compressed it. Raises: CdcError when it is damaged."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections. May be called twice."""
