"""Mistakes of sinks that keep a history, and of those who read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from cdc_conformance.reference.archive import Archive
from cdc_conformance.reference.history import ArchiveHistory
from cdc_core import Flushed, RetryableSinkError, RowBatch, SliceInfo, Timestamp
from cdc_core.sink import Covered
from cdc_core.stored_history import StoredFile

__all__ = [
    "CountsWhatIsFlushed",
    "ForgetsWhatIsAboveTheMark",
    "KeepsOneShape",
    "KeepsWhatBrokeOff",
    "ListsAllMarks",
    "ListsTheNewestFirst",
    "ListsWhatIsThere",
    "NamesFilesByItsOwnRun",
    "RecordsEachMarkOnce",
    "TakesUnknownForNothing",
    "TellsEntriesAgain",
    "TellsItsPassword",
    "TellsTheLastFile",
    "TellsTuples",
    "TrustsFiles",
]


class TellsTheLastFile(Archive):
    """Has one file for each slice, until there are two tables."""

    def flush(self) -> Flushed:
        self.entries = [entry for entry in self.entries if entry["topic"] == self.entries[-1]["topic"]]
        return super().flush()


class KeepsWhatBrokeOff(Archive):
    """Goes on with its list of files when another slice begins."""

    def begin(self, slice_: SliceInfo) -> None:
        entries = self.entries
        super().begin(slice_)
        self.entries = entries


class CountsWhatIsFlushed(Archive):
    """Puts files on a list when they are flushed, from which the next mark takes them."""

    def flush(self) -> Flushed:
        flushed = super().flush()
        with (self.root / "flushed").open("a") as file:
            file.writelines(f"{json.dumps(entry)}\n" for entry in flushed.delivered)
        return flushed

    def record(self, covered: Covered) -> None:
        listed = self.root / "flushed"
        found = {entry["path"]: entry for entry in covered.delivered}
        for line in listed.read_text().splitlines() if listed.exists() else ():
            found.setdefault(json.loads(line)["path"], json.loads(line))
        super().record(dataclasses.replace(covered, delivered=tuple(found.values())))
        listed.unlink(missing_ok=True)


class NamesFilesByItsOwnRun(Archive):
    """Has the number of the run in its names, whoever planned the slice."""

    def prefix(self, slice_: SliceInfo) -> str:
        return f"{slice_.lower}-{self.context.epoch:08x}-{slice_.step:08x}-{slice_.index:04x}"


class RecordsEachMarkOnce(Archive):
    """Takes a record that is there already for somebody else's."""

    def record(self, covered: Covered) -> None:
        if (self.root / f"marks/{covered.mark}.json").exists():
            raise RetryableSinkError(f"the mark {covered.mark} is recorded already; give another")
        super().record(covered)


class KeepsOneShape(Archive):
    """Describes a table once, as it is now."""

    def shape(self, rows: RowBatch, topic: str) -> str:
        path = f"shapes/{quote(topic, safe='')}.json"
        (self.root / super().shape(rows, topic)).replace(self.root / path)
        return path


class TellsEntriesAgain(Archive):
    """Tells with each flush of all that the slice has."""

    def flush(self) -> Flushed:
        entries = self.entries
        flushed = super().flush()
        self.entries = entries
        return flushed


class TellsTuples(Archive):
    """Has values in its entries that JSON has not."""

    def entry(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        entry = super().entry(rows, topic, name, content)
        return {**entry, "table": tuple(entry["table"])}


class TellsItsPassword(Archive):
    """Says of each file with which login it was written."""

    def entry(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        return {**super().entry(rows, topic, name, content), "login": self.options.password}


class ListsAllMarks(ArchiveHistory):
    """Leaves it to the reader what is above the mark."""

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        del upto
        return super().files(upto=self.marks()[-1], after=after)


class ForgetsWhatIsAboveTheMark(ArchiveHistory):
    """Goes on behind the mark, and leaves out the files of the marks up to it."""

    def chain(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        return [mark for mark in super().chain(upto, after) if mark > after]


class ListsTheNewestFirst(ArchiveHistory):
    """Lists files as a page for people does."""

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        yield from reversed(list(super().files(upto=upto, after=after)))


class TrustsFiles(ArchiveHistory):
    """Takes a file for whole when it can be read."""

    def checksum(self, content: bytes) -> str:
        del content
        return self.expected

    expected = ""

    def body(self, file: StoredFile) -> bytes:
        self.expected = file.checksum
        return super().body(file)


class ListsWhatIsThere(ArchiveHistory):
    """Takes the marks that it finds for all that there were."""

    def chain(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        chain = [mark for mark in self.marks() if mark <= upto]
        if all(self.previous(mark) is not None for mark in chain):
            return chain
        return super().chain(upto, after)


class TakesUnknownForNothing(ArchiveHistory):
    """Reads a mark without one before it like the first mark."""

    def previous(self, mark: Timestamp) -> Timestamp | None:
        return super().previous(mark) or Timestamp()
