"""The file, and all that knows how its lines look."""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

Rows = dict[tuple[str, int], dict[str, Any]]  # by table and id


class Journal:
    """One line for each transaction, never changed: {"at": ns, "writes": [[table, id, before, after]]}.

    {"at": ns, "create": table} and {"at": ns, "drop": table} are lines too. "at" rises from line to line.
    """

    def __init__(self, uri: str) -> None:
        self.path = Path(unquote(urlsplit(uri).path))

    def tip(self) -> tuple[int, int]:
        """Return the size of the file, and a time that is below every line still to come."""
        with self._locked("rb") as file:
            return file.seek(0, 2), time.time_ns() - 1

    def lines(self, start: int, end: int) -> Iterator[tuple[int, dict[str, Any], int]]:
        """Yield where each line ends, the line, and its size."""
        with self.path.open("rb") as file:
            file.seek(start)
            while (place := file.tell()) < end:
                text = file.readline()
                yield place + len(text), json.loads(text), len(text)

    def rows(self, end: int) -> Rows:
        """Return the rows that there were when the file had *end* bytes."""
        rows: Rows = {}
        for _, line, _ in self.lines(0, end):
            for table, id_, _, after in line.get("writes", ()):
                if after is None:
                    rows.pop((table, id_), None)
                else:
                    rows[table, id_] = after
        return rows

    def tables(self, end: int) -> set[str]:
        """Return the tables that there were then."""
        tables: set[str] = set()
        for _, line, _ in self.lines(0, end):
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
