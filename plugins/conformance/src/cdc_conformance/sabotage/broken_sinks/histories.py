"""Mistakes of sinks with a history, and of the classes that read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from cdc_conformance.reference.archive.history import ArchiveHistory
from cdc_conformance.reference.archive.resolved_sink import ArchiveResolvedSink
from cdc_conformance.reference.archive.sink import ArchiveSink
from cdc_core import Covered, Flushed, RetryableSinkError, RowBatch, SliceInfo, StoredFile, Timestamp

__all__ = [
    "IgnoresPlannedBy",
    "KeepsOneShape",
    "ListsAllMarks",
    "ListsExistingMarks",
    "ListsFilesInClose",
    "ListsFilesInFlush",
    "ListsTheNewestFirst",
    "RecordsEachMarkOnce",
    "RecordsListedFiles",
    "ReturnsEntriesAgain",
    "ReturnsItsPassword",
    "ReturnsTheLastTable",
    "ReturnsTuples",
    "SkipsEarlierMarks",
    "TreatsUnknownAsFirst",
    "TrustsFiles",
]

_LIST = "listed"


class ReturnsTheLastTable(ArchiveSink):
    """Returns the entries of one table, because its author tested with one."""

    def flush(self) -> Flushed:
        self.entries = [entry for entry in self.entries if entry["topic"] == self.entries[-1]["topic"]]
        return super().flush()


class ListsFilesInClose(ArchiveSink):
    """Lists in `close` the files that were not flushed, for the next record."""

    def close(self) -> None:
        _list(self, self.entries)
        super().close()


class ListsFilesInFlush(ArchiveSink):
    """Lists files in `flush`, for the next record."""

    def flush(self) -> Flushed:
        flushed = super().flush()
        _list(self, flushed.delivered)
        return flushed


class RecordsListedFiles(ArchiveResolvedSink):
    """Records not only what is covered, but also what the sink has listed."""

    def record(self, covered: Covered) -> None:
        listed = self.directory.root / _LIST
        found = {entry["path"]: entry for entry in covered.delivered}
        for line in listed.read_text().splitlines() if listed.exists() else ():
            found.setdefault(json.loads(line)["path"], json.loads(line))
        super().record(dataclasses.replace(covered, delivered=tuple(found.values())))
        listed.unlink(missing_ok=True)


class IgnoresPlannedBy(ArchiveSink):
    """Names files by its own epoch, whichever attempt planned the slice."""

    def epoch_of(self, slice_: SliceInfo) -> int:
        del slice_
        return self.context.epoch


class RecordsEachMarkOnce(ArchiveResolvedSink):
    """Refuses a record that exists."""

    def record(self, covered: Covered) -> None:
        if (self.directory.root / f"marks/{covered.mark}.json").exists():
            raise RetryableSinkError(f"the mark {covered.mark} is recorded already; record another one")
        super().record(covered)


class KeepsOneShape(ArchiveSink):
    """Describes only the current version of a table."""

    def write_shape(self, rows: RowBatch, topic: str) -> str:
        path = f"shapes/{quote(topic, safe='')}.json"
        (self.directory.root / super().write_shape(rows, topic)).replace(self.directory.root / path)
        return path


class ReturnsEntriesAgain(ArchiveSink):
    """Returns all entries of the slice with each flush."""

    def begin(self, slice_: SliceInfo) -> None:
        super().begin(slice_)
        self.entries = []

    def flush(self) -> Flushed:
        entries = self.entries
        flushed = super().flush()
        self.entries = entries
        return flushed


class ReturnsTuples(ArchiveSink):
    """Has values in its entries that JSON does not have."""

    def entry(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        entry = super().entry(rows, topic, name, content)
        return {**entry, "table": tuple(entry["table"])}


class ReturnsItsPassword(ArchiveSink):
    """Has in each entry the login that wrote the file."""

    def entry(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        return {**super().entry(rows, topic, name, content), "login": self.options.password}


class ListsAllMarks(ArchiveHistory):
    """Lists the files of later marks too."""

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        del upto
        return super().files(upto=self.marks()[-1], after=after)


class SkipsEarlierMarks(ArchiveHistory):
    """Continues after a mark, and skips the files of the marks up to it."""

    def chain(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        return [mark for mark in super().chain(upto, after) if mark > after]


class ListsTheNewestFirst(ArchiveHistory):
    """Lists the newest file first, as for people."""

    def files(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        yield from reversed(list(super().files(upto=upto, after=after)))


class TrustsFiles(ArchiveHistory):
    """Accepts every file that can be read."""

    expected = ""

    def checksum(self, content: bytes) -> str:
        del content
        return self.expected

    def body(self, file: StoredFile) -> bytes:
        self.expected = file.checksum
        return super().body(file)


class ListsExistingMarks(ArchiveHistory):
    """Assumes that the marks which exist are all that were recorded."""

    def chain(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        chain = [mark for mark in self.marks() if mark <= upto]
        if all(self.previous(mark) is not None for mark in chain):
            return chain
        return super().chain(upto, after)


class TreatsUnknownAsFirst(ArchiveHistory):
    """Reads a mark without a previous one as the first mark."""

    def previous(self, mark: Timestamp) -> Timestamp | None:
        return super().previous(mark) or Timestamp()


def _list(sink: ArchiveSink, entries: Sequence[Any]) -> None:
    if entries:
        with (sink.directory.root / _LIST).open("a") as file:
            file.writelines(f"{json.dumps(entry)}\n" for entry in entries)
