"""Histories: what is recorded is read exactly once, whatever crashed."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_conformance.rows import Change, rows
from cdc_conformance.side_effects import failure_of
from cdc_conformance.sinks.options import SECRET, SecretOptions, feeds_with_secrets
from cdc_conformance.sinks.rig import AT, ORDERS, USERS, WIDER_ORDERS, SinkRig, versions
from cdc_conformance.sinks.seen import Row
from cdc_core import CdcError, ChangeReader, Covered, Flushed, HistoryLostError, RowBatch, Timestamp
from cdc_core.config.parts import Parts


class Recording:
    """Writes slices and marks as the engine does, and reads what is recorded."""

    def __init__(self, rig: SinkRig) -> None:
        self._rig = rig
        self._saved: list[Mapping[str, Any]] = []
        self._previous: Timestamp | None = Timestamp()
        self._latest = Timestamp()

    def write(self, *batches: RowBatch, **place: Any) -> Flushed:
        """Write one slice as `SinkRig.write` does, and save its entries."""
        flushed = self._rig.write(*batches, **place)
        self.save(flushed, *batches)
        return flushed

    def save(self, flushed: Flushed, *batches: RowBatch) -> None:
        """Let the next mark cover the entries of *flushed*."""
        self._saved += flushed.delivered
        self._latest = max(self._latest, *(batch.latest() for batch in batches))

    def mark(self, timestamp: Timestamp, *, times: int = 1, gap: bool = False) -> None:
        """Record and emit a mark over everything that was saved. *gap*: rows were delivered without a record."""
        covered = Covered(
            mark=timestamp, previous=None if gap else self._previous, latest=self._latest, delivered=tuple(self._saved)
        )
        self._rig.expect_mark(timestamp)
        for epoch in range(1, times + 1):
            with self._rig.closing(self._rig.open_resolved_sink(epoch=epoch)) as resolved_sink:
                resolved_sink.record(covered)
                resolved_sink.emit_resolved(timestamp)
        self._previous, self._saved = timestamp, []

    def reader(self) -> ChangeReader:
        """Return a reader of the history, which the caller closes."""
        return ChangeReader(self._rig.full_uri(), host=self._rig.host)

    def read(self, *, upto: Timestamp | None = None, after: Timestamp = Timestamp()) -> list[RowBatch]:
        """Return the rows that are recorded."""
        with self.reader() as reader:
            return list(reader.read(upto=upto, after=after))

    def differences(self, found: Sequence[RowBatch], written: Sequence[RowBatch]) -> str:
        """Describe the first difference between the rows of *found* and of *written*, in any order; empty if none."""
        wanted, there = self._values(written), self._values(found)
        counts = Counter(self._rig.rows(*found))
        for row, values in wanted.items():
            if row not in there:
                return f"{row} is missing"
            if there[row] != values:
                return f"{row} has the values {there[row]}, not {values}"
        unknown = next((row for row in there if row not in wanted), None)
        if unknown is not None:
            return f"{unknown} was read, but never recorded"
        return next((f"{row} arrived {count} times" for row, count in counts.items() if count > 1), "")

    def assert_read(
        self, *written: RowBatch, after: str, upto: Timestamp | None = None, found: Sequence[RowBatch] | None = None
    ) -> None:
        """Require that *found*, or what is read up to a mark, is exactly *written*. *after*: what has happened.

        Raises: AssertionError that names the first difference.
        """
        __tracebackhide__ = True
        difference = self.differences(self.read(upto=upto) if found is None else found, written)
        assert not difference, f"{after}, but {difference}"

    def assert_lost(self, what: str) -> None:
        """Require that reading raises HistoryLostError."""
        __tracebackhide__ = True
        error = failure_of(self.read)
        assert isinstance(error, HistoryLostError), f"{what}, so reading must raise HistoryLostError, not {error!r}"

    def _values(self, batches: Sequence[RowBatch]) -> dict[Row, Any]:
        rows = self._rig.rows(*batches)
        values = [after for batch in batches for after in batch.column("after").to_pylist()]
        return dict(zip(rows, values, strict=True))


class DirectoryStorage:
    """The files of a sink that writes to a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def paths(self) -> frozenset[str]:
        """Return the path of every file, below the root."""
        return frozenset(str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        (self._root / path).write_bytes(content)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()


class ExactlyOnce:
    """Promises of sinks whose registration names a `history`. `cdc_core.ChangeReader` reads it."""

    @pytest.fixture
    def recording(self, fresh: SinkRig) -> Recording:
        """Writes, records and reads."""
        fresh.start(ORDERS, USERS)
        return Recording(fresh)

    def test_recorded_rows_are_read_exactly_once(self, recording: Recording) -> None:
        """Every row of the slices that marks cover is there once, with its values, in whatever file it is."""
        written = []
        for step in range(2):
            for index in range(2):
                slice_ = [
                    versions(range(9 * index, 9 * index + 4), at=100 * step, schema=each) for each in (ORDERS, USERS)
                ]
                recording.write(*slice_, step=step, index=index)
                written += slice_
            recording.mark(_at(100 * step + 50))
        recording.assert_read(*written, after="four slices were recorded")

    def test_an_unfinished_slice_is_not_read(self, fresh: SinkRig, recording: Recording) -> None:
        """Rows of a slice that was not flushed are not recorded, although their files may exist.

        A process may have died before `flush`, or the sink may have been closed without it. `close` records nothing.
        """
        unfinished, later = versions(range(4)), versions(range(4), at=100)
        fresh.crash_after(*fresh.calls(unfinished))
        with fresh.closing(fresh.open_sink()) as sink:
            fresh.emit(sink, unfinished, task_attempt=1)
        recording.write(unfinished, epoch=2)
        recording.write(later, step=1, epoch=2)
        recording.mark(_at(150))
        recording.assert_read(unfinished, later, after="a slice ended twice before its flush and was then repeated")

    def test_a_flushed_but_unsaved_slice_is_not_read(self, fresh: SinkRig, recording: Recording) -> None:
        """A process dies after `flush`, before its report is saved. A later attempt plans again; only its files count.

        `flush` makes files durable, and only `record` makes them count.
        """
        batch = versions(range(4))
        fresh.crash_after(*fresh.calls(batch), "flush")
        recording.write(batch, epoch=2)
        recording.mark(_at(50))
        recording.assert_read(batch, after="a slice was flushed, its report was lost, and it was written again")

    def test_a_repeated_plan_writes_the_same_files(self, fresh: SinkRig, recording: Recording) -> None:
        """A slice with `planned_by` returns what the attempt of that epoch returned: the same entries, the same names.

        A repetition then overwrites what a crash left with the same content, and consumers that list the files see no
        row twice. Use the epoch in `planned_by` in names, and write nothing that differs from attempt to attempt.
        """
        batches = versions(range(4)), versions(range(4), at=10)
        with fresh.closing(fresh.open_sink()) as sink:
            first = fresh.write_with(sink, *batches, step=3)
        again = recording.write(*batches, step=3, epoch=2, planned_by=1)
        assert again.delivered == first.delivered, (
            f"attempt 2 repeated the plan of attempt 1, which delivered {first.delivered}, but delivered"
            f" {again.delivered}"
        )

    def test_a_mark_can_be_recorded_twice(self, recording: Recording) -> None:
        """`record` accepts the same mark and entries again, in a later attempt, and changes nothing."""
        batch = versions(range(4))
        recording.write(batch)
        error = failure_of(lambda: recording.mark(_at(50), times=2))
        assert error is None, f"a mark may be recorded twice, but that raised {error!r}"
        recording.assert_read(batch, after="a mark was recorded twice")

    def test_no_row_after_a_mark_is_read(self, recording: Recording) -> None:
        """Up to a mark, a reader gets no files of later marks, and no rows above the mark of its own files."""
        first, second = versions(range(6)), versions(range(6), at=100)
        recording.write(first)
        recording.mark(_at(2))
        recording.write(second, step=1)
        recording.mark(_at(150))
        with recording.reader() as reader:
            later = [file.path for file in reader.files(upto=_at(2)) if file.mark > _at(2)]
        assert not later, f"up to the mark {_at(2)}, the history lists these files of later marks: {later}"
        recording.assert_read(first.slice(0, 3), after="three rows are at or below the first mark", upto=_at(2))

    def test_incremental_reads_miss_and_repeat_nothing(self, recording: Recording) -> None:
        """A consumer that reads from mark to mark has every row once in the end.

        A file may hold rows above the mark that covers it: they belong to the next part. List a file by the times of
        its rows, not only by its mark.
        """
        batches = [versions(range(6), at=100 * step) for step in range(3)]
        marks = [_at(2), _at(104), _at(250)]
        for step, (batch, mark) in enumerate(zip(batches, marks, strict=True)):
            recording.write(batch, step=step)
            recording.mark(mark)
        bounds = [Timestamp(), *marks]
        found = [
            each for after, upto in zip(bounds, marks, strict=False) for each in recording.read(after=after, upto=upto)
        ]
        recording.assert_read(*batches, after="a history was read in three parts, one after the other", found=found)

    def test_rows_of_a_key_are_read_in_order(self, fresh: SinkRig, recording: Recording) -> None:
        """Versions of a key are read in the order of their times: within a file, across files, and across marks."""
        for step in range(4):
            recording.write(*(versions([1, 2, 1], at=100 * step + 10 * part) for part in range(3)), step=step)
            if step % 2:
                recording.mark(_at(100 * step + 50))
        latest: dict[object, Timestamp] = {}
        for row in fresh.rows(*recording.read()):
            before = latest.get(row.key, Timestamp())
            assert row.updated > before, f"{row} was read after the version updated {before}"
            latest[row.key] = row.updated

    def test_each_version_of_a_table_is_read_with_its_own_columns(self, recording: Recording) -> None:
        """Old versions of a table are read without the database: the history has their names, types and keys."""
        old = versions(range(3))
        new = rows(WIDER_ORDERS, [Change({"id": n, "note": "new", "added": 7}) for n in range(3)], start=_at(100))
        recording.write(old, new)
        recording.mark(_at(150))
        found = recording.read()
        schemas = sorted((batch.schema for batch in found), key=lambda schema: schema.version)
        assert schemas == [ORDERS, WIDER_ORDERS], f"rows of versions 1 and 2 of a table are read with {schemas}"
        recording.assert_read(old, new, after="rows of two versions of a table were recorded", found=found)

    @pytest.mark.parametrize("how", ["changed", "truncated", "missing"])
    def test_a_damaged_file_is_detected(self, recording: Recording, storage: DirectoryStorage, how: str) -> None:
        """A file that is not what was recorded raises HistoryLostError, and none of its rows is returned.

        Not every change makes a file unreadable: compare a checksum of what is stored.
        """
        recording.write(rows(ORDERS, [Change({"id": n, "note": "n" * 300}) for n in range(3)]))
        recording.mark(_at(50))
        with recording.reader() as reader:
            (file,) = reader.files()
        content = storage.read(file.path)
        if how == "missing":
            storage.remove(file.path)
        else:
            middle = len(content) // 2
            other = bytes([content[middle] ^ 1])
            storage.write(file.path, content[:middle] + (other + content[middle + 1 :] if how == "changed" else b""))
        recording.assert_lost(f"a file is {how}")

    def test_a_missing_record_is_detected(self, recording: Recording, storage: DirectoryStorage) -> None:
        """When the record of the second of three marks is missing, reading across it raises HistoryLostError.

        An exactly-once reader must never skip rows silently. Let each record name the one before it.
        """
        for step in range(3):
            recording.write(versions(range(3), at=100 * step), step=step)
            before = storage.paths()
            recording.mark(_at(100 * step + 50))
            if step == 1:
                removed = storage.paths() - before
        for path in removed:
            storage.remove(path)
        recording.assert_lost("the record of the second of three marks is missing")

    def test_unrecorded_rows_are_detected(self, recording: Recording) -> None:
        """When `Covered.previous` is None, rows were delivered without a record, and reading across them is refused.

        From that mark on, the history is complete again.
        """
        recording.write(versions(range(3)))
        recording.mark(_at(50))
        recording.write(versions(range(3), at=100), step=1)
        recording.mark(_at(150), gap=True)
        recording.assert_lost("rows were delivered without a record")

    def test_each_entry_is_returned_by_one_flush(self, fresh: SinkRig, recording: Recording) -> None:
        """`Flushed.delivered` has only what is new since the last flush, so that no file is recorded twice."""
        batches = [versions(range(3), at=100 * number) for number in range(2)]
        with fresh.closing(fresh.open_sink()) as sink:
            fresh.begin(sink, *batches)
            for batch in batches:
                sink.emit(batch)
                recording.save(sink.flush(), batch)
            last = sink.flush().delivered
        recording.mark(_at(150))
        assert not last, f"nothing was emitted since the last flush, but flush returned {last}"
        recording.assert_read(*batches, after="a slice was flushed twice and all entries were recorded")

    def test_entries_are_json(self, recording: Recording) -> None:
        """Entries of `Flushed.delivered` are JSON objects: the progress store returns them unchanged."""
        for entry in recording.write(versions(range(3)), versions(range(3), schema=USERS)).delivered:
            stored = _through_json(entry)
            assert stored == entry, f"the entry {entry} becomes {stored} in the progress store"

    def test_entries_hold_no_secrets(self, fresh: SinkRig, recording: Recording, secret_options: SecretOptions) -> None:
        """No entry of `Flushed.delivered` holds a secret: it is saved in the progress store and in records."""
        del recording
        for feed in feeds_with_secrets(fresh, secret_options):
            flushed = Flushed()
            with contextlib.suppress(CdcError):
                sink = Parts(feed).open_sink()
                flushed = fresh.write_with(sink, versions([1]))
                sink.close()
            for entry in flushed.delivered:
                assert SECRET not in str(entry), f"a secret shows in an entry: {entry}"


def _at(ns: int) -> Timestamp:
    return Timestamp(AT.wall + ns)


def _through_json(entry: Mapping[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(entry))
    except (TypeError, ValueError) as error:
        return f"nothing ({error})"
