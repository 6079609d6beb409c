from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.store import Chunk, Staged, Store
from cdc_sink_cloudstorage.uploads import Uploads

from cdc_core import RetryableSinkError, TerminalSinkError

LIMIT_S = 120.0


class Gated(Store):
    """Keeps objects in a list. A path given to `hold` waits until its event is set; a path in `bad` fails."""

    max_name_bytes = 255

    def __init__(self) -> None:
        self.visible: list[str] = []
        self.staged: list[str] = []
        self.discarded: list[str] = []
        self.at_once: list[str] = []
        self.bad: set[str] = set()
        self._held: dict[str, threading.Event] = {}

    def hold(self, path: str) -> threading.Event:
        return self._held.setdefault(path, threading.Event())

    def check(self) -> None: ...

    def sweep(self) -> None:
        self.stage("sweep", [])

    def put(self, path: str, chunks: Sequence[Chunk]) -> None:
        self.at_once.append(path)
        super().put(path, chunks)

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        if path in self._held:
            self._held[path].wait(LIMIT_S)
        if path in self.bad:
            raise RetryableSinkError(f"cannot write {path}: broken")
        self.staged.append(path)
        return _Object(self, path)


class _Object(Staged):
    def __init__(self, store: Gated, path: str) -> None:
        self._store = store
        self._path = path

    def publish(self) -> None:
        self._store.visible.append(self._path)

    def discard(self) -> None:
        self._store.discarded.append(self._path)


def uploading() -> set[threading.Thread]:
    """Return the threads of this process that upload. Those of earlier tests may be among them, and end at any time."""
    return {thread for thread in threading.enumerate() if thread.name == "cloudstorage-upload"}


@pytest.fixture
def store() -> Gated:
    return Gated()


@pytest.fixture
def uploads(store: Gated) -> Iterator[Uploads]:
    uploads = Uploads(store, max_bytes=1000)
    yield uploads
    uploads.close()


def put(uploads: Uploads, path: str, *, lane: str = "orders", nbytes: int = 10) -> None:
    uploads.put(path, [b"x"], nbytes=nbytes, lane=lane)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline


def test_files_are_uploaded_at_the_same_time_but_become_visible_in_order(store: Gated, uploads: Uploads) -> None:
    gate = store.hold("a")
    put(uploads, "a")
    put(uploads, "b")
    until(lambda: store.staged == ["b"])
    assert store.visible == []
    gate.set()
    uploads.wait()
    assert store.visible == ["a", "b"]


def test_four_full_files_are_uploaded_at_the_same_time_by_default(store: Gated) -> None:
    options = CloudStorageOptions()
    uploads = Uploads(store, max_bytes=options.upload_buffer)
    gate = store.hold("0")
    for number in range(4):
        put(uploads, str(number), nbytes=options.file_size * 5 // 4)
    until(lambda: sorted(store.staged) == ["1", "2", "3"])
    gate.set()
    uploads.close()


def test_wait_waits_for_a_sweep_and_raises_its_failure(store: Gated, uploads: Uploads) -> None:
    uploads.sweep()
    uploads.wait()
    assert store.staged == ["sweep"]
    store.bad = {"sweep"}
    uploads.sweep()
    with pytest.raises(RetryableSinkError, match="cannot write sweep"):
        uploads.wait()


def test_lanes_do_not_wait_for_each_other(store: Gated, uploads: Uploads) -> None:
    gate = store.hold("a")
    put(uploads, "a", lane="orders")
    put(uploads, "b", lane="users")
    until(lambda: store.visible == ["b"])
    gate.set()
    uploads.wait()


def test_no_file_of_a_lane_becomes_visible_after_a_failure(store: Gated, uploads: Uploads) -> None:
    store.bad = {"b"}
    gate = store.hold("b")
    for path in ("a", "b", "c", "d"):
        put(uploads, path)
    until(lambda: len(store.staged) == 3)
    gate.set()
    with pytest.raises(RetryableSinkError, match="cannot write b: broken"):
        uploads.wait()
    until(lambda: sorted(store.discarded) == ["c", "d"])
    assert store.visible == ["a"]


def test_every_put_and_wait_raises_after_a_failure(store: Gated, uploads: Uploads) -> None:
    store.bad = {"a"}
    put(uploads, "a")
    until(lambda: uploads.pending_bytes == 0)
    for _ in range(2):
        with pytest.raises(RetryableSinkError):
            put(uploads, "b")
        with pytest.raises(RetryableSinkError):
            uploads.wait()
    assert store.visible == []


def test_put_waits_while_the_buffer_is_full(store: Gated, uploads: Uploads) -> None:
    gate = store.hold("a")
    for path in ("a", "b"):
        put(uploads, path, nbytes=600)
    waiting = threading.Thread(target=put, args=(uploads, "c"), kwargs={"nbytes": 600}, daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert uploads.pending_bytes == 1200
    gate.set()
    waiting.join(LIMIT_S)
    uploads.wait()
    assert store.visible == ["a", "b", "c"]


def test_a_file_larger_than_the_buffer_is_uploaded_alone(store: Gated, uploads: Uploads) -> None:
    for path in ("a", "b"):
        put(uploads, path, nbytes=5000)
    uploads.wait()
    assert uploads.pending_bytes == 0
    assert store.visible == ["a", "b"]


def test_a_put_that_waits_for_the_buffer_raises_after_a_failure(store: Gated, uploads: Uploads) -> None:
    gate = store.hold("a")
    store.bad = {"a"}
    put(uploads, "a", nbytes=1000)
    threading.Timer(0.05, gate.set).start()
    with pytest.raises(RetryableSinkError, match="cannot write a"):
        put(uploads, "b", nbytes=900)


def test_a_file_that_need_not_wait_is_uploaded_with_put(store: Gated, uploads: Uploads) -> None:
    gate = store.hold("a")
    for path in ("a", "b"):
        put(uploads, path)
    until(lambda: store.staged == ["b"])
    gate.set()
    uploads.wait()
    put(uploads, "c")
    put(uploads, "d", lane="users")
    uploads.wait()
    assert sorted(store.at_once) == ["a", "c", "d"]


def test_close_waits_for_nothing_and_ends_the_threads(store: Gated, uploads: Uploads) -> None:
    gate = store.hold("a")
    before = uploading()
    for path in ("a", "b", "c"):
        put(uploads, path)
    until(lambda: store.at_once == ["a"] and sorted(store.staged) == ["b", "c"])
    uploads.close()
    uploads.close()
    with pytest.raises(TerminalSinkError, match="closed"):
        put(uploads, "d")
    with pytest.raises(TerminalSinkError, match="closed"):
        uploads.wait()
    gate.set()
    until(lambda: sorted(store.discarded) == ["b", "c"])
    until(lambda: uploading() <= before)
    assert store.visible == ["a"], "its upload had begun"


def test_at_most_four_threads_upload(store: Gated, uploads: Uploads) -> None:
    before = uploading()
    for number in range(50):
        put(uploads, str(number), lane=str(number % 7))
    assert 1 <= len(uploading() - before) <= 4
    uploads.wait()
    assert len(store.visible) == 50
