"""Stores other than a local directory. Memory stands for object stores, a borrowed directory for the rest."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest
from cdc_sink_cloudstorage.remote import PUT_IS_ATOMIC, FsspecStore
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_sink_cloudstorage.temporaries import Temporaries
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from cdc_core import ConfigError, RetryableSinkError, RowBatch, SliceInfo, TerminalSinkError, Timestamp

OpenSink = Callable[..., CloudStorageSink]


class AtticFileSystem(LocalFileSystem):  # type: ignore[misc]
    """A file system that can move but whose puts are not atomic."""

    protocol = "attic"

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        text = str(path)
        return "/" + text.removeprefix("attic://").strip("/")


class StuckFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """A file system that cannot move: fsspec would copy and delete."""

    protocol = "stuck"


@pytest.fixture(autouse=True)
def extra_file_systems() -> Iterator[None]:
    fsspec.register_implementation("attic", AtticFileSystem, clobber=True)
    fsspec.register_implementation("stuck", StuckFileSystem, clobber=True)
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def attic(root: Path, *, epoch: int = 7) -> FsspecStore:
    temporaries = Temporaries(changefeed="feed", epoch=epoch)
    return FsspecStore(f"attic:/{root}", protocol="attic", shown="attic://x", temporaries=temporaries)


def write_slice(sink: CloudStorageSink, rows: Callable[..., RowBatch], slice_: SliceInfo) -> None:
    sink.begin(slice_)
    for number in range(10):
        sink.emit(rows(range(number * 10, number * 10 + 10), version=1 + number // 5))
    sink.flush()
    sink.emit_resolved(slice_.lower)


def test_an_object_store_gets_the_same_files_as_a_directory(
    open_sink: OpenSink, rows: Callable[..., RowBatch], slice_of: Callable[..., SliceInfo], root: Path
) -> None:
    options = {"file_size": "500", "compression": "zstd"}
    for uri in (f"file://{root}", "memory://bucket/feeds"):
        sink = open_sink(options, uri=uri)
        sink.check()
        write_slice(sink, rows, slice_of())
        sink.check()
    stored = {
        path.removeprefix("/bucket/feeds/"): bytes(file.getvalue()) for path, file in MemoryFileSystem.store.items()
    }
    local = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert stored == local
    assert len(stored) > 2


def test_a_file_system_that_moves_gets_the_same_files_as_a_directory(
    open_sink: OpenSink, rows: Callable[..., RowBatch], slice_of: Callable[..., SliceInfo], tmp_path: Path
) -> None:
    found = []
    for number, uri in enumerate((f"file://{tmp_path}/0", f"attic:/{tmp_path}/1")):
        sink = open_sink({"file_size": "500"}, uri=uri)
        sink.check()
        for _ in range(2):
            write_slice(sink, rows, slice_of())
        base = tmp_path / str(number)
        found.append(
            {path.relative_to(base).as_posix(): path.read_bytes() for path in base.rglob("*") if path.is_file()}
        )
    assert found[0] == found[1]
    assert len(found[0]) > 2


def test_where_puts_are_not_atomic_a_failed_one_is_not_visible(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(path: str, value: bytes) -> None:
        Path(path).write_bytes(value[:3])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(AtticFileSystem, "pipe_file", staticmethod(torn))
    with pytest.raises(RetryableSinkError, match="cannot write attic://x/day/file: No space left on device"):
        attic(root, epoch=7).put("day/file", [b"whole"])
    assert list((root / "day").iterdir()) == []
    assert len(list((root / ".inprogress").iterdir())) == 1
    attic(root, epoch=7).sweep()
    assert len(list((root / ".inprogress").iterdir())) == 1
    attic(root, epoch=8).sweep()
    assert list((root / ".inprogress").iterdir()) == []


def test_a_file_system_that_cannot_move_whole_files_is_refused(open_sink: OpenSink) -> None:
    with pytest.raises(ConfigError) as refused:
        open_sink(uri="stuck://host/out").check()
    assert str(refused.value) == (
        "sink stuck://host/out cannot be used because stuck:// has no way to move a whole file into place:"
        " choose a file system or object store that has"
    )


@pytest.mark.parametrize(
    ("raised", "kind", "reason"),
    [
        (PermissionError("Access Denied"), RetryableSinkError, "Access Denied; let this process's user write there"),
        (FileNotFoundError("The specified bucket does not exist"), RetryableSinkError, "The specified bucket"),
        (ConnectionError("reset"), RetryableSinkError, "reset"),
        (RuntimeError("pool is closed"), RetryableSinkError, "RuntimeError: pool is closed"),
        (OSError(errno.EINVAL, "bad"), TerminalSinkError, "Invalid argument"),
    ],
)
def test_what_clients_raise_is_translated(
    open_sink: OpenSink,
    start: Timestamp,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    kind: type[Exception],
    reason: str,
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", Mock(side_effect=raised))
    with pytest.raises(kind) as failed:
        open_sink({"partition_format": "flat"}, uri="memory://bucket").emit_resolved(start)
    place = "memory://bucket/202004022058072107140000000000000.RESOLVED"
    assert str(failed.value).startswith(f"cannot write {place}: {reason}")


def test_check_says_why_a_store_cannot_be_listed(open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "ls", Mock(side_effect=PermissionError("Access Denied")))
    with pytest.raises(ConfigError) as refused:
        open_sink(uri="memory://bucket/feeds").check()
    assert str(refused.value) == (
        "sink memory://bucket/feeds cannot be listed: Access Denied; check that it exists and that the credentials"
        " in the environment may use it"
    )


@pytest.mark.parametrize(
    ("uri", "raised", "sentence"),
    [
        (
            "s3://bucket/x",
            ImportError("Install s3fs to access S3"),
            "sink URI 's3://bucket/x' needs the package s3fs, which is not installed: pip install s3fs",
        ),
        (
            "azure://box/x",
            ImportError("Install adlfs"),
            "sink URI 'azure://box/x' needs the package adlfs, which is not installed: pip install adlfs",
        ),
        (
            "smb://me:hunter2@host/x",
            ImportError("no"),
            "sink URI 'smb://host/x' needs the fsspec implementation of 'smb', which is not installed or lacks a"
            " package: install it",
        ),
        (
            "cellar://shelf/x",
            ValueError("Protocol not known: cellar"),
            "sink URI 'cellar://shelf/x' has the scheme 'cellar', for which fsspec knows no file system: install the"
            " package that supplies it, or choose file, s3, gs or azure",
        ),
    ],
)
def test_a_store_that_is_not_installed_is_named_with_what_to_install(
    open_sink: OpenSink, monkeypatch: pytest.MonkeyPatch, uri: str, raised: Exception, sentence: str
) -> None:
    monkeypatch.setattr(fsspec, "get_filesystem_class", Mock(side_effect=raised))
    with pytest.raises(ConfigError) as refused:
        open_sink(uri=uri).check()
    assert str(refused.value) == sentence


def test_a_uri_without_a_bucket_is_refused(open_sink: OpenSink) -> None:
    with pytest.raises(ConfigError, match="sink URI 's3://' names no bucket or host: write s3://name/path"):
        open_sink(uri="s3://").check()


def test_schemes_of_object_stores_are_known_to_put_whole_objects() -> None:
    assert {"s3", "gs", "az", "memory"} <= PUT_IS_ATOMIC
