"""Mistakes of sinks with a history, and of the classes that read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from cdc_conformance.reference.archive import ArchiveHistory, ArchiveResolvedSink, ArchiveSink
from cdc_conformance.sabotage.breaking import breaks, mistakes
from cdc_core import Covered, Flushed, RetryableSinkError, RowBatch, SliceInfo, StoredFile, Timestamp

_LIST = "listed"


@mistakes
class Archives(ArchiveSink):
    @breaks("test_recorded_rows_are_read_exactly_once", "flush")
    def returns_the_last_table(self) -> Flushed:
        """Returns the entries of one table, because its author tested with one."""
        self.entries = [entry for entry in self.entries if entry["topic"] == self.entries[-1]["topic"]]
        return super().flush()

    @breaks("test_an_unfinished_slice_is_not_read", "close")
    def lists_files_in_close(self) -> None:
        """Lists in `close` the files that were not flushed, for the next record."""
        _list(self, self.entries)
        super().close()

    @breaks("test_a_flushed_but_unsaved_slice_is_not_read", "flush")
    def lists_files_in_flush(self) -> Flushed:
        """Lists files in `flush`, for the next record."""
        flushed = super().flush()
        _list(self, flushed.delivered)
        return flushed

    @breaks("test_a_repeated_plan_writes_the_same_files", "epoch_of")
    def ignores_planned_by(self, slice_: SliceInfo) -> int:  # noqa: ARG002
        """Names files by its own epoch, whichever attempt planned the slice."""
        return self.context.epoch

    @breaks("test_each_version_of_a_table_is_read_with_its_own_columns", "write_shape")
    def keeps_one_shape(self, rows: RowBatch, topic: str) -> str:
        """Describes only the current version of a table."""
        path = f"shapes/{quote(topic, safe='')}.json"
        (self.directory.root / super().write_shape(rows, topic)).replace(self.directory.root / path)
        return path

    @breaks("test_entries_are_json", "entry")
    def returns_tuples(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        """Has values in its entries that JSON does not have."""
        entry = super().entry(rows, topic, name, content)
        return {**entry, "table": tuple(entry["table"])}

    @breaks("test_entries_hold_no_secrets", "entry")
    def returns_its_password(self, rows: RowBatch, topic: str, name: str, content: bytes) -> dict[str, Any]:
        """Has in each entry the login that wrote the file."""
        return {**super().entry(rows, topic, name, content), "login": self.options.password}


@breaks("test_each_entry_is_returned_by_one_flush")
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


@mistakes
class Records(ArchiveResolvedSink):
    @breaks("test_an_unfinished_slice_is_not_read", "record")
    def records_files_of_close(self, covered: Covered) -> None:
        """The records of `ListsFilesInClose`."""
        listed = self.directory.root / _LIST
        found = {entry["path"]: entry for entry in covered.delivered}
        for line in listed.read_text().splitlines() if listed.exists() else ():
            found.setdefault(json.loads(line)["path"], json.loads(line))
        super().record(dataclasses.replace(covered, delivered=tuple(found.values())))
        listed.unlink(missing_ok=True)

    @breaks("test_a_flushed_but_unsaved_slice_is_not_read", "record")
    def records_files_of_flush(self, covered: Covered) -> None:
        """The records of `ListsFilesInFlush`."""
        self.records_files_of_close(covered)

    @breaks("test_a_mark_can_be_recorded_twice", "record")
    def records_each_mark_once(self, covered: Covered) -> None:
        """Refuses a record that exists."""
        if (self.directory.root / f"marks/{covered.mark}.json").exists():
            raise RetryableSinkError(f"the mark {covered.mark} is recorded already; record another one")
        super().record(covered)


@mistakes
class Histories(ArchiveHistory):
    @breaks("test_no_row_after_a_mark_is_read", "files")
    def lists_all_marks(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:  # noqa: ARG002
        """Lists the files of later marks too."""
        return super().files(upto=self.marks()[-1], after=after)

    @breaks("test_incremental_reads_miss_and_repeat_nothing", "chain")
    def skips_earlier_marks(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        """Continues after a mark, and skips the files of the marks up to it."""
        return [mark for mark in super().chain(upto, after) if mark > after]

    @breaks("test_rows_of_a_key_are_read_in_order", "files")
    def lists_the_newest_first(self, *, upto: Timestamp, after: Timestamp = Timestamp()) -> Iterator[StoredFile]:
        """Lists the newest file first, as for people."""
        return reversed(list(super().files(upto=upto, after=after)))

    @breaks("test_a_damaged_file_is_detected", "body")
    def trusts_files(self, file: StoredFile) -> bytes:
        """Accepts every file that can be read."""
        return self.content(file.path)

    @breaks("test_a_missing_record_is_detected", "chain")
    def lists_existing_marks(self, upto: Timestamp, after: Timestamp) -> Sequence[Timestamp]:
        """Assumes that the marks which exist are all that were recorded."""
        chain = [mark for mark in self.marks() if mark <= upto]
        known = all(self.previous(mark) is not None for mark in chain)
        return chain if known else super().chain(upto, after)

    @breaks("test_unrecorded_rows_are_detected", "previous")
    def treats_unknown_as_first(self, mark: Timestamp) -> Timestamp | None:
        """Reads a mark without a previous one as the first mark."""
        return super().previous(mark) or Timestamp()


def _list(sink: ArchiveSink, entries: Sequence[Any]) -> None:
    if entries:
        with (sink.directory.root / _LIST).open("a") as file:
            file.writelines(f"{json.dumps(entry)}\n" for entry in entries)
