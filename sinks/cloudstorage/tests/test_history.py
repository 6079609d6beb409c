"""The promises of manifests: each file that counts is listed once, no other file is, and every gap is noticed."""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from cdc_sink_cloudstorage.history import CloudStorageHistory
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.resolved_sink import CloudStorageResolvedSink
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_sink_cloudstorage.store import Chunk, Staged
from cdc_testing.cloud_rig import CloudRig, rows
from fsspec.implementations.local import LocalFileSystem

from cdc_core import ConfigError, Covered, HistoryLostError, RowBatch, SliceInfo, Timestamp

ZERO = Timestamp()


def at(n: int) -> Timestamp:
    return Timestamp(1_585_861_087_000_000_000 + n)


class Feed:
    """A changefeed whose steps and marks a test makes one by one, as the engine would."""

    def __init__(
        self, sink: CloudStorageSink, resolved_sink: CloudStorageResolvedSink, rows: Callable[..., RowBatch]
    ) -> None:
        self.sink = sink
        self.resolved_sink = resolved_sink
        self.rows = rows
        self.waiting: list[Any] = []
        self.previous = ZERO
        self.steps = 0

    def step(self, *walls: int, table: str = "orders", version: int = 1) -> list[str]:
        """Deliver a row at each of *walls*; return the paths of their files."""
        self.sink.begin(SliceInfo(step=self.steps, index=0, lower=at(min(walls))))
        self.steps += 1
        for wall in walls:
            self.sink.emit(self.rows([wall], wall=at(wall).wall, table=table, version=version))
        delivered = list(self.sink.flush().delivered)
        self.waiting += delivered
        return [entry["path"] for entry in delivered]

    def mark(self, wall: int, *, latest: int | None = None, previous: Timestamp | None = None) -> Timestamp:
        """Record and emit a mark. *previous* is the last mark by default."""
        before = previous or self.previous
        reached = at(latest or wall)
        covered = Covered(mark=at(wall), previous=before, latest=reached, delivered=tuple(self.waiting))
        self.resolved_sink.record(covered)
        self.resolved_sink.emit_resolved(at(wall))
        self.waiting, self.previous = [], at(wall)
        return at(wall)


@pytest.fixture
def open_feed(cloud: CloudRig) -> Callable[..., Feed]:
    """Makes a changefeed from fields of the context."""
    return lambda **fields: Feed(cloud.sink(**fields), cloud.resolved_sink(**fields), rows)


@pytest.fixture
def feed(open_feed: Callable[..., Feed]) -> Feed:
    return open_feed(feed_id="0123456789ab", format="lines")


@pytest.fixture
def history(cloud: CloudRig) -> Iterator[CloudStorageHistory]:
    history = CloudStorageHistory(f"file://{cloud.root}", CloudStorageOptions())
    yield history
    history.close()


def listed(history: CloudStorageHistory, upto: Timestamp, after: Timestamp = ZERO) -> list[str]:
    return [file.path for file in history.files(upto=upto, after=after)]


def test_a_manifest_describes_its_files(cloud: CloudRig, feed: Feed, history: CloudStorageHistory) -> None:
    (path,) = feed.step(3, 1, 2, version=10)
    mark = feed.mark(9)
    (file,) = pickle.loads(pickle.dumps(list(history.files(upto=mark))))
    assert (file.path, str(file.table), file.topic) == (path, "public.orders", "orders")
    assert (file.table.database, file.schema_version, file.format) == ("shop", 10, "lines")
    assert (file.rows, file.bytes) == (3, (cloud.root / path).stat().st_size)
    assert (file.lower, file.upper, file.mark) == (at(1), at(3), mark)
    assert [json.loads(line)[1] for line in history.body(file).splitlines()] == [3, 1, 2]
    shape = history.shape(file)
    assert (shape.format, shape.schema.version, shape.schema.primary_key) == ("lines", 10, ("id",))
    assert shape.schema.column("id").type.source == "bigint"


def test_a_mark_without_new_files_is_a_mark(feed: Feed, history: CloudStorageHistory) -> None:
    files = feed.step(1)
    marks = [feed.mark(2), feed.mark(3), feed.mark(4)]
    assert history.marks() == marks
    assert listed(history, marks[-1]) == files
    assert listed(history, marks[-1], after=marks[0]) == []


def test_rows_above_the_mark_of_their_file_are_found_when_reading_after_it(
    feed: Feed, history: CloudStorageHistory
) -> None:
    ahead = feed.step(1, 9)  # one part of the table is ahead of the others
    first = feed.mark(2, latest=9)
    second = feed.mark(5, latest=9)
    later = feed.step(6)
    third = feed.mark(10)
    assert listed(history, third, after=first) == ahead + later
    assert listed(history, third, after=second) == ahead + later
    assert listed(history, third, after=third) == []


def test_a_manifest_of_a_mark_that_was_not_saved_is_skipped(feed: Feed, history: CloudStorageHistory) -> None:
    first = feed.step(1)
    start = feed.mark(2)
    feed.mark(3)  # never saved in the progress store
    second = feed.step(4)
    last = feed.mark(5, previous=start)
    assert listed(history, last) == first + second
    assert listed(history, last, after=at(3)) == second


def test_a_missing_manifest_is_noticed(cloud: CloudRig, feed: Feed, history: CloudStorageHistory) -> None:
    feed.step(1)
    feed.mark(2)
    feed.step(3)
    feed.mark(4)
    kept = feed.step(5)
    last = feed.mark(6)
    (gone,) = cloud.root.rglob("*07000000004*.MANIFEST.*")
    gone.unlink()
    with pytest.raises(HistoryLostError, match=f"the manifest of the mark {at(4)} does not exist. Read after {last}"):
        listed(history, last)
    feed.step(7)
    assert len(listed(history, feed.mark(8), after=last)) == 1
    assert kept


@pytest.mark.parametrize("cut", [1, -30])
def test_a_damaged_manifest_is_noticed(cloud: CloudRig, feed: Feed, history: CloudStorageHistory, cut: int) -> None:
    feed.step(1)
    mark = feed.mark(2)
    (manifest,) = cloud.root.rglob("*.MANIFEST.*")
    manifest.write_bytes(manifest.read_bytes()[:cut])
    with pytest.raises(HistoryLostError, match="cannot be read"):
        listed(history, mark)


def test_damaged_and_missing_files_are_noticed(cloud: CloudRig, feed: Feed, history: CloudStorageHistory) -> None:
    (path,) = feed.step(1)
    (file,) = history.files(upto=feed.mark(2))
    body = (cloud.root / path).read_bytes()
    (cloud.root / path).write_bytes(body[:-1] + b"x")
    with pytest.raises(HistoryLostError, match=f"{path} is not the file that the mark"):
        history.body(file)
    (cloud.root / path).unlink()
    with pytest.raises(HistoryLostError, match="does not exist"):
        history.body(file)
    (schema,) = (cloud.root / "_schemas").iterdir()
    schema.write_text("{}")
    with pytest.raises(HistoryLostError, match=r"the schema of .*, is damaged"):
        history.shape(file)
    schema.unlink()
    with pytest.raises(HistoryLostError, match=r"_schemas.*does not exist"):
        history.shape(file)


def test_changefeeds_that_share_a_root_have_separate_histories(cloud: CloudRig, open_feed: Callable[..., Feed]) -> None:
    one = open_feed(changefeed="one", feed_id="0" * 12)
    two = open_feed(changefeed="two", feed_id="1" * 12)
    again = open_feed(changefeed="two", feed_id="2" * 12)
    paths = [feed.step(1, table=f"t{index}") for index, feed in enumerate((one, two, again))]
    for feed in (one, two, again):
        feed.mark(2)  # all at the same time

    def of(changefeed: str) -> CloudStorageHistory:
        return CloudStorageHistory(f"file://{cloud.root}", CloudStorageOptions(), changefeed=changefeed)

    assert of("").changefeeds() == [f"one.{'0' * 12}", f"two.{'1' * 12}", f"two.{'2' * 12}"]
    assert listed(of("one"), at(2)) == paths[0]
    assert listed(of(f"two.{'2' * 12}"), at(2)) == paths[2]
    with pytest.raises(ConfigError, match=f"Choose one of one.{'0' * 12}, two.{'1' * 12}, two.{'2' * 12}"):
        of("").marks()
    with pytest.raises(ConfigError, match=f"Choose one of two.{'1' * 12}, two.{'2' * 12}"):
        of("two").marks()
    with pytest.raises(ConfigError, match="changefeed 'three' has no manifest below"):
        of("three").marks()


def test_a_place_without_manifests_names_the_option_that_writes_them(
    cloud: CloudRig, history: CloudStorageHistory
) -> None:
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"there is no manifest below .*\. Set the changefeed's option 'resolved'"
        ):
            history.marks()
        cloud.root.mkdir(exist_ok=True)


def test_a_time_that_is_not_a_mark_is_refused(feed: Feed, history: CloudStorageHistory) -> None:
    mark = feed.mark(2)
    with pytest.raises(
        ConfigError, match=f"{at(3)} is not a resolved mark of the files below .*; the newest is {mark}"
    ):
        listed(history, at(3))


def test_a_long_chain_of_manifests_is_one_history(feed: Feed, history: CloudStorageHistory) -> None:
    files = []
    for step in range(150):
        files += feed.step(2 * step + 1)
        mark = feed.mark(2 * step + 2)
    assert listed(history, mark) == files
    assert listed(history, mark, after=at(102)) == files[51:]


def test_each_schema_file_is_written_once_and_before_the_files_of_its_version(cloud: CloudRig) -> None:
    sink = cloud.sink({"file_size": "1B"}, format="lines")
    sink.begin(SliceInfo(step=0, index=0, lower=at(1)))
    for version in (1, 2, 1, 2):
        sink.emit(rows([1], version=version))
    sink.flush()
    schemas = sorted(path.name for path in (cloud.root / "_schemas").iterdir())
    assert [name.rpartition("-")[0] for name in schemas] == ["orders-1", "orders-2"]
    first_file = min(path.stat().st_mtime_ns for path in cloud.root.glob("2*/*"))
    assert (cloud.root / "_schemas" / schemas[0]).stat().st_mtime_ns < first_file


def test_a_file_never_changes_its_content(cloud: CloudRig) -> None:
    """A reader that skips the names which it knows would miss rows, here the third."""

    def write(epoch: int, batches: list[list[int]], *, planned_by: int | None = None) -> list[str]:
        sink = cloud.sink({"file_size": "1B"}, epoch=epoch)
        sink.begin(SliceInfo(step=4, index=0, lower=at(1), planned_by=planned_by))
        for batch in batches:
            sink.emit(rows(batch))
        return [entry["path"] for entry in sink.flush().delivered]

    write(7, [[1], [2]])
    before = {path: (cloud.root / path).read_bytes() for path in cloud.visible()}
    delivered = write(9, [[1], [2, 3], [4]], planned_by=7)  # the source gave batches with other borders
    assert {path: (cloud.root / path).read_bytes() for path in before} == before
    assert delivered[0] in before
    assert not set(delivered[1:]) & set(before)
    assert sorted(delivered) == delivered


@pytest.mark.parametrize("planned_by", [None, 7])
def test_a_task_attempt_never_overwrites_the_files_of_an_earlier_one(cloud: CloudRig, planned_by: int | None) -> None:
    """A worker died, and values that the source fills in have changed: the same slice has other bytes and batches."""

    def write(task_attempt: int, batches: list[list[int]]) -> list[str]:
        sink = cloud.sink({"file_size": "1B"}, epoch=9)
        sink.begin(SliceInfo(step=4, index=0, lower=at(1), planned_by=planned_by, task_attempt=task_attempt))
        for batch in batches:
            sink.emit(rows(batch))
        return [entry["path"] for entry in sink.flush().delivered]

    known: dict[str, bytes] = {}
    for task_attempt, batches in enumerate(([[1], [2], [3]], [[1], [2, 3], [4]], [[1], [2, 3, 4], [5]])):
        delivered = write(task_attempt, batches)
        assert {path: (cloud.root / path).read_bytes() for path in known} == known
        assert sorted(delivered) == delivered
        assert max(cloud.visible()) == delivered[-1]
        known = {path: (cloud.root / path).read_bytes() for path in cloud.visible()}
    assert len(known) == 3 + 2 + 2


def test_a_name_whose_file_cannot_be_read_is_not_used_again(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that may only write must not make every attempt fail at a file of an earlier one."""

    def denied(self: LocalFileSystem, path: str, **_: object) -> bytes:
        raise PermissionError(13, "Forbidden", path)

    for epoch, planned_by in ((7, None), (9, 7)):
        sink = cloud.sink(epoch=epoch)
        sink.begin(SliceInfo(step=4, index=0, lower=at(1), planned_by=planned_by))
        sink.emit(rows([1, 2]))
        sink.flush()
        monkeypatch.setattr(LocalFileSystem, "cat_file", denied)
    assert len(cloud.visible()) == 2


def test_a_file_that_exists_is_not_uploaded_to_an_object_store_again(
    cloud: CloudRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention rules may forbid replacing it."""
    uri = f"memory://bucket/{secrets.token_hex(4)}"
    sent: list[str] = []
    stage = FsspecStore.stage

    def recording_stage(store: FsspecStore, path: str, chunks: Sequence[Chunk]) -> Staged:
        sent.append(path)
        return stage(store, path, chunks)

    monkeypatch.setattr(FsspecStore, "stage", recording_stage)
    delivered = []
    for epoch, planned_by in ((7, None), (9, 7)):
        sink = cloud.sink({"file_size": "1B"}, uri=uri, epoch=epoch)
        sink.begin(SliceInfo(step=4, index=0, lower=at(1), planned_by=planned_by))
        for key in (1, 2):
            sink.emit(rows([key]))
        delivered.append(sink.flush().delivered)
    assert delivered[0] == delivered[1]
    assert sorted(path for path in sent if "_schemas" not in path) == [entry["path"] for entry in delivered[0]]
