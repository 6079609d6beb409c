"""The journal: one line for each transaction, written by an application."""

import fcntl
import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from cdc_core import Column, ColumnType, Kind, RetryableRangefeedError, TableName, TableSchema, Token

Row = dict[str, Any]
Key = tuple[str, int]  # table, id

_COLUMNS = (
    Column(name="id", type=ColumnType(kind=Kind.INT, source="integer", bits=64), nullable=False),
    Column(name="n", type=ColumnType(kind=Kind.INT, source="integer", bits=64), nullable=False),
    Column(name="note", type=ColumnType(kind=Kind.STRING, source="text")),
)


class Journal:
    """A file of lines {"at": ns, "writes": [[table, id, before, after], …]}. "at" rises from line to line.

    Other lines are {"at": ns, "create": table} and {"at": ns, "drop": table}. Lines never change.
    """

    def __init__(self, uri: str) -> None:
        self.path = Path(unquote(urlsplit(uri).path))

    def tip(self) -> tuple[int, int]:
        """Return the size of the file, and a time below that of every future line."""
        with self._locked("rb") as file:
            return file.seek(0, 2), time.time_ns() - 1

    def lines(self, start: int, end: int) -> Iterator[tuple[int, Row]]:
        """Yield the offset after each line, and the line."""
        with self.path.open("rb") as file:
            file.seek(start)
            while file.tell() < end:
                line = json.loads(file.readline())
                yield file.tell(), line

    def rows(self, end: int) -> dict[Key, Row]:
        """Return all rows that existed when the file had *end* bytes."""
        rows: dict[Key, Row] = {}
        for _, line in self.lines(0, end):
            for table, id_, _, after in line.get("writes", ()):
                rows[table, id_] = after
        return {key: row for key, row in rows.items() if row is not None}

    def rows_to_scan(self, token: Token, tables: Collection[str]) -> list[tuple[Key, Row]]:
        """Return the rows of *tables* that an initial scan has not read before *token*, in order."""
        rows = self.rows(token["offset"])
        return sorted((key, row) for key, row in rows.items() if key[0] in tables and key > tuple(token["scan"]))

    def tables(self) -> set[str]:
        """Return the tables that exist."""
        tables: set[str] = set()
        for _, line in self.lines(0, self.tip()[0]):
            tables |= {line["create"]} if "create" in line else set()
            tables -= {line["drop"]} if "drop" in line else set()
        return tables

    def append(self, last: int, **line: Any) -> int:
        """Write a line and return its time, which is above *last*."""
        with self._locked("ab") as file:
            at = max(time.time_ns(), last + 1)
            file.write(json.dumps({"at": at, **line}).encode() + b"\n")
            file.flush()
            return at

    @contextmanager
    def _locked(self, mode: str) -> Iterator[IO[bytes]]:
        with self.path.open(mode) as file:
            fcntl.flock(file, fcntl.LOCK_EX if "a" in mode else fcntl.LOCK_SH)
            yield file


def schema_of(table: str) -> TableSchema:
    """Return the schema of a table. All tables have the same columns."""
    return TableSchema(name=TableName("template", "public", table), version=1, columns=_COLUMNS, primary_key=("id",))


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the file system as errors that tell the engine what to do."""
    try:
        yield
    except OSError as error:
        raise RetryableRangefeedError(f"journal '{error.filename}' cannot be read: {error.strerror}") from error
