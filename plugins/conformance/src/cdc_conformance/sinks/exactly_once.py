"""Histories: what is recorded is read exactly once, whatever crashed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.sinks.recording import DirectoryStorage, Recording
from cdc_conformance.sinks.rig import SinkRig
from cdc_conformance.sinks.secrecy import SECRET, SecretOptions, jobs
from cdc_conformance.sinks.tables import AT, ORDERS, USERS, versions
from cdc_conformance.sinks.watching import failure_of
from cdc_core import CdcError, HistoryLostError, Timestamp
from cdc_core.sink import Flushed

__all__ = ["ExactlyOnce"]

_WIDER = table("orders", {"id": INT8, "note": TEXT, "added": INT8}, version=2)


class ExactlyOnce:
    """Asked of sinks whose registration names a `history`; read with `cdc_core.readback.reader`."""

    @pytest.fixture
    def recording(self, rig: SinkRig) -> Recording:
        """Writes, records and reads; skips the test when the sink keeps no history."""
        if not rig.registration.history:
            pytest.skip("the sink keeps no history: its registration names none")
        rig.start(ORDERS, USERS)
        return Recording(rig)

    def test_recorded_rows_are_read_exactly_once(self, recording: Recording) -> None:
        """Every row of the slices that marks cover is there once, with its values, whichever file it is in."""
        given = []
        for step in range(2):
            for index in range(2):
                slice_ = [
                    versions(range(9 * index, 9 * index + 4), at=100 * step, schema=each) for each in (ORDERS, USERS)
                ]
                recording.write(*slice_, step=step, index=index)
                given += slice_
            recording.mark(_at(100 * step + 50))
        said = recording.differences(recording.read(), given)
        assert not said, f"four slices were recorded, but {said}"

    def test_what_broke_off_is_not_read(self, rig: SinkRig, recording: Recording) -> None:
        """Rows of a slice that was not flushed are none of the record, though their files may be there.

        Neither when its process died, nor when the same sink begins another slice. Forget what files there are in
        `begin`.
        """
        abandoned, kept = versions(range(4)), versions(range(4), at=100)
        rig.crash_after(*rig.calls(abandoned))
        with rig.opened() as sink:
            rig.begin(sink, abandoned)
            sink.emit(abandoned)
            recording.save(rig.write_to(sink, kept, step=1), kept)
        recording.write(abandoned, step=2, epoch=2)
        recording.mark(_at(150))
        said = recording.differences(recording.read(), [abandoned, kept])
        assert not said, f"a slice broke off twice and was repeated, but {said}"

    def test_what_was_flushed_and_not_saved_is_not_read(self, rig: SinkRig, recording: Recording) -> None:
        """A process dies after `flush`, before its report is saved: a later run plans anew, and its files alone count.

        `flush` makes files durable, and only `record` makes them count.
        """
        batch = versions(range(4))
        rig.crash_after(*rig.calls(batch), "flush")
        recording.write(batch, epoch=2)
        recording.mark(_at(50))
        said = recording.differences(recording.read(), [batch])
        assert not said, f"a slice was flushed, its report was lost, and it was written again, but {said}"

    def test_a_repeated_plan_gives_the_same_files(self, rig: SinkRig, recording: Recording) -> None:
        """A slice with `planned_by` gives what the run of that epoch gave for it: the same entries, the same names.

        So what a crash leaves is overwritten with itself, and readers that see files alone see no row twice. Name files
        by the epoch in `planned_by`, and write nothing into them that differs from run to run.
        """
        batches = versions(range(4)), versions(range(4), at=10)
        with rig.opened() as sink:
            rig.begin(sink, *batches, step=3)
            for batch in batches:
                sink.emit(batch)
            first = sink.flush()
        again = recording.write(*batches, step=3, epoch=2, planned_by=1)
        assert again.delivered == first.delivered, (
            f"the plan of run 1 was repeated by run 2; it delivered {first.delivered}, and then {again.delivered}"
        )

    def test_a_mark_can_be_recorded_again(self, recording: Recording) -> None:
        """`record` with the same mark and entries again, from a later run's sink, is accepted and changes nothing."""
        batch = versions(range(4))
        recording.write(batch)
        error = failure_of(lambda: recording.mark(_at(50), times=2))
        assert error is None, f"a mark may be recorded again, but that raised {error!r}"
        said = recording.differences(recording.read(), [batch])
        assert not said, f"a mark was recorded twice, and {said}"

    def test_nothing_beyond_a_mark_is_read(self, recording: Recording) -> None:
        """Up to a mark, the files that later marks cover are left out, and rows above it of its own files too."""
        first, second = versions(range(6)), versions(range(6), at=100)
        recording.write(first)
        recording.mark(_at(2))
        recording.write(second, step=1)
        recording.mark(_at(150))
        with recording.reader() as reader:
            later = [file.path for file in reader.files(upto=_at(2)) if file.mark > _at(2)]
        assert not later, f"up to the mark {_at(2)}, these files of later marks are listed: {later}"
        said = recording.differences(recording.read(upto=_at(2)), [first.slice(0, 3)])
        assert not said, f"three rows are up to the first mark, but {said}"

    def test_reading_on_misses_and_repeats_nothing(self, recording: Recording) -> None:
        """Who has read up to one mark reads on after it, and in the end has seen every row once.

        A file may hold rows above the mark that covers it: they come with the next part. List a file by the times of
        its rows, and not by its mark alone.
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
        said = recording.differences(found, batches)
        assert not said, f"a history was read in three parts, one after the other, but {said}"

    def test_rows_of_a_key_are_read_in_order(self, rig: SinkRig, recording: Recording) -> None:
        """Versions of a key come in the order of their times: within a file, from file to file, from mark to mark."""
        given = []
        for step in range(4):
            batches = [versions([1, 2, 1], at=100 * step + 10 * part) for part in range(3)]
            recording.write(*batches, step=step)
            given += batches
            if step % 2:
                recording.mark(_at(100 * step + 50))
        latest: dict[object, Timestamp] = {}
        for row in rig.rows(*recording.read()):
            before = latest.get(row.key, Timestamp())
            assert row.updated > before, f"{row} is read behind the version of {before}"
            latest[row.key] = row.updated

    def test_each_version_of_a_table_is_read_with_its_own_columns(self, recording: Recording) -> None:
        """Files know their version of the table without the database: names, types, key, also of versions long gone."""
        old = versions(range(3))
        new = rows(_WIDER, [Change({"id": n, "note": "new", "added": 7}) for n in range(3)], start=_at(100))
        recording.write(old, new)
        recording.mark(_at(150))
        found = recording.read()
        schemas = sorted((batch.schema for batch in found), key=lambda schema: schema.version)
        assert schemas == [ORDERS, _WIDER], f"rows of versions 1 and 2 of a table are read as those of {schemas}"
        said = recording.differences(found, [old, new])
        assert not said, f"rows of two versions of a table were recorded, but {said}"

    @pytest.mark.parametrize("how", ["changed", "cut off", "gone"])
    def test_a_damaged_file_is_noticed(self, recording: Recording, storage: DirectoryStorage, how: str) -> None:
        """A file that is not what was recorded raises HistoryLostError, and no row of it is given.

        Not every change makes a file unreadable: compare a checksum of what is stored.
        """
        recording.write(rows(ORDERS, [Change({"id": n, "note": "n" * 300}) for n in range(3)]))
        recording.mark(_at(50))
        with recording.reader() as reader:
            (file,) = reader.files()
        content = storage.read(file.path)
        if how == "gone":
            storage.remove(file.path)
        else:
            middle = len(content) // 2
            other = bytes([content[middle] ^ 1])
            storage.write(file.path, content[:middle] + (other + content[middle + 1 :] if how == "changed" else b""))
        error = failure_of(recording.read)
        assert isinstance(error, HistoryLostError), (
            f"a file is {how}, so reading must raise HistoryLostError, not {error!r}"
        )

    def test_a_gap_is_noticed(self, recording: Recording, storage: DirectoryStorage) -> None:
        """When what was recorded for one of three marks is gone, reading across it raises HistoryLostError.

        Rows that are missing in silence are the one thing that an exactly-once reader must not have. Let each record
        name the one before it.
        """
        for step in range(3):
            recording.write(versions(range(3), at=100 * step), step=step)
            before = storage.paths()
            recording.mark(_at(100 * step + 50))
            if step == 1:
                gone = storage.paths() - before
        for path in gone:
            storage.remove(path)
        error = failure_of(recording.read)
        assert isinstance(error, HistoryLostError), (
            f"the record of the second of three marks is gone, so reading must raise HistoryLostError, not {error!r}"
        )

    def test_rows_in_no_record_are_noticed(self, recording: Recording) -> None:
        """A record whose `previous` is None follows rows that no record tells of; reading across it is refused.

        From that mark on everything is there again.
        """
        recording.write(versions(range(3)))
        recording.mark(_at(50))
        recording.write(versions(range(3), at=100), step=1)
        recording.mark(_at(150), gap=True)
        error = failure_of(recording.read)
        assert isinstance(error, HistoryLostError), (
            f"rows were written that no record tells of, so reading must raise HistoryLostError, not {error!r}"
        )

    def test_entries_are_told_by_one_flush_only(self, rig: SinkRig, recording: Recording) -> None:
        """`Flushed.delivered` tells of what is new since the flush before, so that no file is recorded twice."""
        batches = [versions(range(3), at=100 * number) for number in range(2)]
        with rig.opened() as sink:
            rig.begin(sink, *batches)
            for batch in batches:
                sink.emit(batch)
                recording.save(sink.flush(), batch)
            last = sink.flush().delivered
        recording.mark(_at(150))
        assert not last, f"nothing was emitted since the flush before, but flush told of {last}"
        said = recording.differences(recording.read(), batches)
        assert not said, f"a slice was flushed twice, and all that both flushes told of was recorded, but {said}"

    def test_entries_are_json(self, recording: Recording) -> None:
        """Entries of `Flushed.delivered` are objects of JSON: what comes back from the progress store equals them."""
        for entry in recording.write(versions(range(3)), versions(range(3), schema=USERS)).delivered:
            stored = _through_json(entry)
            assert stored == entry, f"an entry comes back from the progress store as {stored}, it was {entry}"

    def test_entries_hold_no_secrets(self, rig: SinkRig, recording: Recording, secret_options: SecretOptions) -> None:
        """No secret stands in an entry of `Flushed.delivered`: progress stores and manifests are no place for them."""
        del recording
        for job in jobs(rig, rig.uri, secret_options):
            told: Flushed | None = None
            with contextlib.suppress(CdcError):
                sink = job.open_sink()
                told = rig.write_to(sink, versions([1]))
                sink.close()
            for entry in () if told is None else told.delivered:
                assert SECRET not in str(entry), f"a secret shows in an entry: {entry}"


def _at(ns: int) -> Timestamp:
    return Timestamp(AT.wall + ns)


def _through_json(entry: Mapping[str, Any]) -> Any:
    try:
        return json.loads(json.dumps(entry))
    except (TypeError, ValueError) as error:
        return f"nothing ({error})"
