from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from cdc_sink_cloudstorage.local import LocalStore
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.store_problem import os_problem
from cdc_sink_cloudstorage.stored_bodies import StoredBodies
from cdc_sink_cloudstorage.temporary_names import TemporaryNames
from cdc_testing.cloud_rig import START, CloudRig, slice_of

from cdc_core import ConfigError, RetryableSinkError
from cdc_core.errors import is_outage

NOBODY = 65534


def store_at(root: Path, *, changefeed: str = "feed", epoch: int = 7) -> LocalStore:
    store = LocalStore(str(root), temporary_names=TemporaryNames(changefeed=changefeed, epoch=epoch))
    store.prepare()
    return store


def in_progress(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root / ".inprogress") if name != ".id")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as a user whose permissions are checked, which root's are not."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


# check


def test_check_accepts_a_directory_that_can_be_created_and_creates_nothing(cloud: CloudRig, tmp_path: Path) -> None:
    cloud.destination(uri=f"file://{tmp_path}/a/b/c").check()
    cloud.destination(uri=f"file://localhost{tmp_path}").check()
    assert list(tmp_path.iterdir()) == []


def test_check_names_a_file_in_the_place_of_a_directory(cloud: CloudRig, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    file.write_text("")
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=f"file://{file}/feeds/out").check()
    assert str(refused.value) == (
        f"sink directory {file}/feeds/out cannot be used: {file} is not a directory. Choose another directory"
    )
    with pytest.raises(ConfigError, match=r"cannot be used: it is not a directory\. Choose"):
        cloud.destination(uri=f"file://{file}").check()


def test_check_names_a_dangling_link(cloud: CloudRig, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=f"file://{tmp_path}/link/out").check()
    assert str(refused.value) == (
        f"sink directory {tmp_path}/link/out cannot be used: {tmp_path}/link is a dangling symbolic link."
        " Point the link at a directory"
    )


def test_check_reports_a_loop_of_links(cloud: CloudRig, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ConfigError, match=r"it cannot be reached \(Too many levels of symbolic links\)\. Choose"):
        cloud.destination(uri=f"file://{tmp_path}/loop").check()


def test_check_names_a_directory_without_write_permission(cloud: CloudRig) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o555)
        sink = cloud.destination(uri=f"file://{parent}/out")
        with unprivileged(), pytest.raises(ConfigError) as refused:
            sink.check()
        user = NOBODY if os.geteuid() == 0 else os.geteuid()
        os.chmod(parent, 0o755)
    assert str(refused.value) == (
        f"sink directory {parent}/out cannot be used: {parent} is not writable for user id {user}."
        " Grant that user write permission, or choose another directory"
    )
    assert refused.value.repairable


def test_check_names_a_directory_that_takes_no_files(cloud: CloudRig, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"directory /proc/out cannot be used: /proc (does not accept files|is not writable)"
    ):
        cloud.destination(uri="file:///proc/out").check()
    cloud.destination(uri=f"file://{tmp_path}/out").check()
    assert list(tmp_path.iterdir()) == []


def test_check_names_a_full_file_system(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(ConfigError, match=r"does not accept files \(No space left on device\)\. Free some space there"):
        cloud.destination().check()


def test_check_names_a_directory_without_search_permission(cloud: CloudRig) -> None:
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o000)
        with unprivileged(), pytest.raises(ConfigError, match=r"it cannot be reached \(Permission denied\)\. Choose"):
            cloud.destination(uri=f"file://{parent}/a/b").check()
        os.chmod(parent, 0o755)


def test_check_names_a_read_only_file_system(cloud: CloudRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", Mock(return_value=False))
    monkeypatch.setattr(os, "statvfs", Mock(return_value=SimpleNamespace(f_flag=os.ST_RDONLY)))
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=f"file://{tmp_path}/out").check()
    assert str(refused.value) == (
        f"sink directory {tmp_path}/out cannot be used: {tmp_path} is on a read-only file system."
        " Mount the file system writable, or choose another directory"
    )


@pytest.mark.parametrize(
    "uri", ["file://relative", "file://relative/path", "file:relative", "file:/one/slash", "file://", "file://~/out"]
)
def test_a_uri_without_an_absolute_path_is_refused(cloud: CloudRig, uri: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=uri).check()
    assert str(refused.value) == (
        f"sink URI '{uri}' does not have an absolute path. Write file:///absolute/directory, with three slashes"
    )


@pytest.mark.parametrize("uri", ["file:///", "file:////", "file:///a/.."])
def test_the_root_of_the_file_system_is_refused(cloud: CloudRig, uri: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=uri).check()
    assert str(refused.value) == f"sink URI '{uri}' does not name a directory. Write file:///absolute/directory"


def test_a_path_may_be_percent_encoded(cloud: CloudRig, tmp_path: Path) -> None:
    cloud.resolved_sink(uri=f"file://{tmp_path}/my%20feeds%23").emit_resolved(START)
    assert [path.name for path in tmp_path.iterdir()] == ["my feeds#"]
    with pytest.raises(ConfigError, match="Write '\\?' as %3F and '#' as %23"):
        cloud.destination(uri=f"file://{tmp_path}/a#b").check()


# leftovers


def test_the_first_slice_of_an_attempt_removes_the_leftovers_of_earlier_attempts(cloud: CloudRig) -> None:
    directory = cloud.root / ".inprogress"
    directory.mkdir(parents=True)
    dead = TemporaryNames(changefeed="feed", epoch=6).new("00")
    kept = [
        TemporaryNames(changefeed="feed", epoch=7).new("01"),
        TemporaryNames(changefeed="feed", epoch=8).new("02"),
        TemporaryNames(changefeed="another", epoch=1).new("03"),
        "other.txt",
    ]
    for name in [dead, *kept]:
        (directory / name).write_bytes(b"half")
    sink = cloud.sink(epoch=7)
    sink.begin(slice_of())
    sink.flush()
    assert in_progress(cloud.root) == sorted(kept)


def test_a_live_writer_of_an_earlier_attempt_publishes_nothing_after_the_sweep(cloud: CloudRig) -> None:
    old, new = store_at(cloud.root, epoch=1), store_at(cloud.root, epoch=2)

    def slow_body() -> Iterator[bytes]:
        yield b"first half"
        new.sweep()
        yield b"second half"

    body: Any = slow_body()
    with pytest.raises(RetryableSinkError):
        old.put("2020-01-01/a", body)
    assert list((cloud.root / "2020-01-01").iterdir()) == []


# a root that is gone


def test_a_directory_in_the_place_of_another_one_is_told_apart(cloud: CloudRig) -> None:
    destination, name = cloud.destination(), f"directory '{cloud.root}'"
    assert destination.identities() == {}
    destination.prepare()
    before = destination.identities()
    assert before[name] is not None
    destination.prepare()
    assert destination.identities() == before
    cloud.root.rename(cloud.root.with_name("unmounted"))
    assert destination.identities() == {}
    cloud.destination().prepare()
    assert destination.identities()[name] not in (None, before[name])
    (cloud.root / ".inprogress" / ".id").unlink()
    assert destination.identities() == {name: None}


def test_a_root_that_is_not_mounted_takes_no_files(cloud: CloudRig) -> None:
    """They would be lost to everyone as soon as it is mounted."""
    store = store_at(cloud.root)
    store.put("2020-01-01/a", [b"1"])
    cloud.root.rename(cloud.root.with_name("unmounted"))
    for mount_point in (False, True):
        if mount_point:
            cloud.root.mkdir()
        with pytest.raises(RetryableSinkError) as failed:
            store.put("2020-01-01/b", [b"2"])
        assert is_outage(failed.value)
        assert str(failed.value) == (
            f"cannot write {cloud.root}: the directory was removed, or its file system is not mounted. Mount it, or"
            " restart the changefeed to create the directory"
        )
        assert list(cloud.root.parent.rglob("b")) == []
    cloud.root.rmdir()
    cloud.root.with_name("unmounted").rename(cloud.root)
    store.put("2020-01-01/b", [b"2"])


# failures


def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(cloud: CloudRig) -> None:
    """A reader would miss its files, or be told to read after them."""
    store_at(cloud.root).put("2020-01-01/a", [b"1"])
    stored = StoredBodies(f"file://{cloud.root}", CloudStorageOptions())
    assert stored.paths() == ["2020-01-01/a"]
    os.chmod(cloud.root / "2020-01-01", 0o000)
    with unprivileged(), pytest.raises(RetryableSinkError, match=r"cannot read file:.*: Permission denied"):
        stored.paths()
    os.chmod(cloud.root / "2020-01-01", 0o755)


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_a_failed_write_leaves_nothing_behind(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = store_at(cloud.root)
    store.put("2020-01-01/first", [b"whole"])
    monkeypatch.setattr(os, call, Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(RetryableSinkError) as failed:
        store.put("2020-01-02/second", [b"whole"])
    assert (
        str(failed.value)
        == f"cannot write {cloud.root}/2020-01-02/second: No space left on device. Free some space there"
    )
    assert {path.name for path in cloud.root.rglob("*") if path.is_file()} == {".id", "first"}


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOSPC, "outage", ". Free some space there"),
        (errno.EDQUOT, "outage", ". Free some space there or raise the quota"),
        (errno.EROFS, "repairable", ". Mount the file system writable"),
        (errno.EACCES, "repairable", ". Grant this process's user write permission for the directory"),
        (errno.EPERM, "repairable", ". Grant this process's user write permission for the directory"),
        (errno.ENOTDIR, "counted", ". Remove the file where the sink needs a directory"),
        (errno.EISDIR, "counted", ". Remove the directory where the sink needs a file"),
        (errno.EIO, "outage", ""),
        (errno.ESTALE, "outage", ""),
        (errno.ENAMETOOLONG, "permanent", ". Shorten topic_prefix or the path of the sink"),
        (errno.EXDEV, "permanent", ". Keep all directories below the root on one file system"),
    ],
)
def test_only_what_lasts_ends_the_changefeed(number: int, kind: str, remedy: str) -> None:
    problem = os_problem(OSError(number, "in other words"))
    error = problem.failure("/data/x")
    assert str(error) == f"cannot write /data/x: {os.strerror(number)}{remedy}"
    assert isinstance(error, RetryableSinkError) is (kind in ("outage", "counted"))
    assert is_outage(error) is (kind == "outage")
    assert error.repairable is (kind == "repairable")
    assert problem.refusal("x").repairable is (kind != "permanent")


def test_a_directory_that_was_removed_meanwhile_is_created_again(cloud: CloudRig) -> None:
    store = store_at(cloud.root)
    store.put("2020-01-01/a", [b"1"])
    (cloud.root / "2020-01-01" / "a").unlink()
    (cloud.root / "2020-01-01").rmdir()
    store.put("2020-01-01/b", [b"2"])
    assert (cloud.root / "2020-01-01" / "b").read_bytes() == b"2"


def test_file_and_directories_are_synced_before_put_returns(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recording_fsync(descriptor: int) -> None:
        steps.append("sync " + os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), cloud.root))
        fsync(descriptor)

    def recording_replace(source: Any, target: Any) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    store_at(cloud.root).put("2020-01-01/15/a", [b"1"])
    before, after = steps[: steps.index("rename")], steps[steps.index("rename") + 1 :]
    assert {"sync ..", "sync .", "sync 2020-01-01"} <= set(before)
    assert any(step.endswith(".tmp") for step in before)
    assert after == ["sync 2020-01-01/15"]
