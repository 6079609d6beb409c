"""Stores other than a local directory. Memory stands for object stores."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import fsspec
import pytest
from cdc_sink_cloudstorage import destination
from cdc_sink_cloudstorage.plugin import cdc_register_sinks
from cdc_sink_cloudstorage.sink import CloudStorageSink
from fsspec.implementations.memory import MemoryFileSystem

from cdc_core import ConfigError, RetryableSinkError, RowBatch, SliceInfo, TerminalSinkError, Timestamp

OpenSink = Callable[..., CloudStorageSink]


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


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
    with pytest.raises(ConfigError, match="sink URI 's3://' names no bucket: write s3://name/path"):
        open_sink(uri="s3://").check()


def test_every_scheme_of_the_sink_is_one_of_a_store_that_shows_whole_objects_only() -> None:
    (registration,) = cdc_register_sinks()
    assert {*destination._PROTOCOLS, "file"} == set(registration.schemes)
