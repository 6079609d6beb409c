from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from cdc_sink_cloudstorage.local import LocalStore
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_sink_cloudstorage.store import failure
from cdc_sink_cloudstorage.temporaries import Temporaries

from cdc_core import ConfigError, RetryableSinkError, SliceInfo, TerminalSinkError, Timestamp

OpenSink = Callable[..., CloudStorageSink]
NOBODY = 65534


def store_at(root: Path, *, changefeed: str = "feed", epoch: int = 7) -> LocalStore:
    return LocalStore(str(root), temporaries=Temporaries(changefeed=changefeed, epoch=epoch))


def in_progress(root: Path) -> list[str]:
    return sorted(os.listdir(root / ".inprogress"))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as a user for whom permissions count."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


# check


def test_check_accepts_a_directory_that_can_be_created_and_creates_nothing(open_sink: OpenSink, tmp_path: Path) -> None:
    open_sink(uri=f"file://{tmp_path}/a/b/c").check()
    open_sink(uri=f"file://localhost{tmp_path}").check()
    assert list(tmp_path.iterdir()) == []


def test_check_names_the_file_that_is_in_the_way(open_sink: OpenSink, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("")
    with pytest.raises(ConfigError) as refused:
        open_sink(uri=f"file://{file}/feeds/out").check()
    assert str(refused.value) == (
        f"sink directory {file}/feeds/out cannot be used because {file} is not a directory:"
        " choose a directory that is writable"
    )
    with pytest.raises(ConfigError, match="because it is not a directory: choose"):
        open_sink(uri=f"file://{file}").check()


def test_check_names_a_dangling_link(open_sink: OpenSink, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError) as refused:
        open_sink(uri=f"file://{tmp_path}/link/out").check()
    assert str(refused.value) == (
        f"sink directory {tmp_path}/link/out cannot be used because {tmp_path}/link is a symbolic link to nothing:"
        " point it at a directory that is writable"
    )


def test_check_names_a_loop_of_links(open_sink: OpenSink, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ConfigError, match=r"it cannot be reached \(Too many levels of symbolic links\): choose"):
        open_sink(uri=f"file://{tmp_path}/loop").check()


def test_check_names_a_directory_without_write_permission(open_sink: OpenSink) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o555)
        sink = open_sink(uri=f"file://{parent}/out")
        with unprivileged(), pytest.raises(ConfigError) as refused:
            sink.check()
        user = NOBODY if os.geteuid() == 0 else os.geteuid()
        os.chmod(parent, 0o755)
    assert str(refused.value) == (
        f"sink directory {parent}/out cannot be used because {parent} is not writable for user id {user}:"
        " grant that user write permission or choose a directory that is writable"
    )


def test_check_names_a_directory_that_may_not_be_entered(open_sink: OpenSink) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o000)
        with unprivileged(), pytest.raises(ConfigError, match=r"it cannot be reached \(Permission denied\): choose a"):
            open_sink(uri=f"file://{parent}/a/b").check()
        os.chmod(parent, 0o755)


def test_check_names_a_read_only_file_system(
    open_sink: OpenSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", Mock(return_value=False))
    monkeypatch.setattr(os, "statvfs", Mock(return_value=SimpleNamespace(f_flag=os.ST_RDONLY)))
    with pytest.raises(ConfigError) as refused:
        open_sink(uri=f"file://{tmp_path}/out").check()
    assert str(refused.value) == (
        f"sink directory {tmp_path}/out cannot be used because {tmp_path} is on a read-only file system:"
        " mount it writable or choose a directory that is writable"
    )


@pytest.mark.parametrize(
    "uri", ["file://relative", "file://relative/path", "file:relative", "file:/one/slash", "file://", "file://~/out"]
)
def test_a_uri_without_an_absolute_path_is_refused(open_sink: OpenSink, uri: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_sink(uri=uri).check()
    assert str(refused.value) == (
        f"sink URI '{uri}' has no absolute path: write file:///absolute/directory, with three slashes"
    )


@pytest.mark.parametrize("uri", ["file:///", "file:////", "file:///a/.."])
def test_the_root_of_the_file_system_is_refused(open_sink: OpenSink, uri: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_sink(uri=uri).check()
    assert str(refused.value) == f"sink URI '{uri}' names no directory: write file:///absolute/directory"


def test_a_path_may_be_percent_encoded(open_sink: OpenSink, tmp_path: Path, start: Timestamp) -> None:
    open_sink(uri=f"file://{tmp_path}/my%20feeds%23").emit_resolved(start)
    assert [path.name for path in tmp_path.iterdir()] == ["my feeds#"]
    with pytest.raises(ConfigError, match="write '\\?' as %3F and '#' as %23"):
        open_sink(uri=f"file://{tmp_path}/a#b").check()


# leftovers


def test_the_first_slice_of_a_run_removes_what_dead_runs_left(
    open_sink: OpenSink, root: Path, slice_of: Callable[..., SliceInfo]
) -> None:
    directory = root / ".inprogress"
    directory.mkdir(parents=True)
    dead = Temporaries(changefeed="feed", epoch=6).new("00")
    kept = [
        Temporaries(changefeed="feed", epoch=7).new("01"),
        Temporaries(changefeed="feed", epoch=8).new("02"),
        Temporaries(changefeed="another", epoch=1).new("03"),
        "strange.txt",
    ]
    for name in [dead, *kept]:
        (directory / name).write_bytes(b"half")
    sink = open_sink(epoch=7)
    sink.begin(slice_of())
    sink.flush()
    assert in_progress(root) == sorted(kept)


def test_a_writer_of_a_dead_run_that_still_lives_publishes_nothing_after_the_sweep(root: Path) -> None:
    old, new = store_at(root, epoch=1), store_at(root, epoch=2)

    def slow_body() -> Iterator[bytes]:
        yield b"first half"
        new.sweep()
        yield b"second half"

    body: Any = slow_body()
    with pytest.raises(RetryableSinkError):
        old.put("2020-01-01/a", body)
    assert list((root / "2020-01-01").iterdir()) == []


# failures


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_a_failed_write_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = store_at(root)
    store.put("2020-01-01/first", [b"whole"])
    monkeypatch.setattr(os, call, Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(RetryableSinkError) as failed:
        store.put("2020-01-02/second", [b"whole"])
    assert str(failed.value) == f"cannot write {root}/2020-01-02/second: No space left on device; free space there"
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["first"]


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOSPC, RetryableSinkError, "; free space there"),
        (errno.EDQUOT, RetryableSinkError, "; free space there or raise the quota"),
        (errno.EROFS, RetryableSinkError, "; mount it writable"),
        (errno.EACCES, RetryableSinkError, "; let this process's user write there"),
        (errno.EPERM, RetryableSinkError, "; let this process's user write there"),
        (errno.EIO, RetryableSinkError, ""),
        (errno.ESTALE, RetryableSinkError, ""),
        (errno.ENAMETOOLONG, TerminalSinkError, "; shorten topic_prefix or the sink's path"),
        (errno.EXDEV, TerminalSinkError, "; all directories under the root must be on one file system"),
    ],
)
def test_what_can_heal_is_retried_and_what_cannot_ends_the_changefeed(
    number: int, kind: type[Exception], remedy: str
) -> None:
    error = failure("/data/x", OSError(number, "in other words"))
    assert type(error) is kind
    assert str(error) == f"cannot write /data/x: {os.strerror(number)}{remedy}"


def test_a_directory_removed_under_way_is_made_again(root: Path) -> None:
    store = store_at(root)
    store.put("2020-01-01/a", [b"1"])
    (root / "2020-01-01" / "a").unlink()
    (root / "2020-01-01").rmdir()
    (root / ".inprogress").rmdir()
    store.put("2020-01-01/b", [b"2"])
    assert (root / "2020-01-01" / "b").read_bytes() == b"2"


def test_file_and_directories_are_synced_before_put_returns(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        steps.append("sync " + os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), root))
        fsync(descriptor)

    def noting_replace(source: Any, target: Any) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    store_at(root).put("2020-01-01/15/a", [b"1"])
    before, after = steps[: steps.index("rename")], steps[steps.index("rename") + 1 :]
    assert {"sync ..", "sync .", "sync 2020-01-01"} <= set(before)
    assert any(step.endswith(".tmp") for step in before)
    assert after == ["sync 2020-01-01/15"]
