"""Stores other than a local directory, on fsspec's file system in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import fsspec
import pytest
from cdc_sink_cloudstorage import uris
from cdc_sink_cloudstorage.plugin import cdc_register_sinks
from cdc_sink_cloudstorage.sink import CloudStorageSink
from cdc_testing.cloud_rig import START, CloudRig, rows, slice_of
from fsspec.implementations.memory import MemoryFileSystem

from cdc_core import ConfigError, RetryableSinkError, RowBatch, SliceInfo, TerminalSinkError
from cdc_core.errors import is_outage


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


def test_an_object_store_gets_the_same_files_as_a_directory(cloud: CloudRig) -> None:
    options = {"file_size": "500", "compression": "zstd"}
    for uri in (f"file://{cloud.root}", "memory://bucket/feeds"):
        destination = cloud.destination(options, uri=uri)
        destination.check()
        write_slice(cloud.sink(options, uri=uri), rows, slice_of())
        cloud.resolved_sink(options, uri=uri).emit_resolved(slice_of().lower)
        destination.check()
    stored = {
        path.removeprefix("/bucket/feeds/"): bytes(file.getvalue()) for path, file in MemoryFileSystem.store.items()
    }
    local = {
        path.relative_to(cloud.root).as_posix(): path.read_bytes()
        for path in cloud.root.rglob("*")
        if path.is_file() and path.name != ".id"
    }
    assert stored == local
    assert len(stored) > 2


@pytest.mark.parametrize(
    ("raised", "kind", "reason"),
    [
        (
            PermissionError("Access Denied"),
            "repairable",
            "Access Denied. Grant this process's user write permission for the directory",
        ),
        (FileNotFoundError("The specified bucket does not exist"), "repairable", "The specified bucket"),
        (ConnectionError("reset"), "outage", "reset"),
        (OSError("out of order"), "outage", "out of order"),
        (RuntimeError("pool is closed"), "odd", "RuntimeError: pool is closed"),
        (OSError(errno.EINVAL, "bad"), "permanent", "Invalid argument"),
    ],
)
def test_errors_of_clients_are_translated(
    cloud: CloudRig, monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: str, reason: str
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", Mock(side_effect=raised))
    with pytest.raises(RetryableSinkError if kind in ("outage", "odd") else TerminalSinkError) as failed:
        cloud.resolved_sink({"partition_format": "flat"}, uri="memory://bucket").emit_resolved(START)
    place = "memory://bucket/202004022058072107140000000000000.RESOLVED"
    assert str(failed.value).startswith(f"cannot write {place}: {reason}")
    assert failed.value.repairable is (kind == "repairable")
    assert is_outage(failed.value) is (kind == "outage")


def test_check_says_why_a_store_cannot_be_listed(cloud: CloudRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "ls", Mock(side_effect=PermissionError("Access Denied")))
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri="memory://bucket/feeds").check()
    assert str(refused.value) == (
        "sink memory://bucket/feeds cannot be listed: Access Denied. Check that it exists, and that the credentials in"
        " the environment have access to it"
    )


@pytest.mark.parametrize(
    ("uri", "raised", "sentence"),
    [
        (
            "s3://bucket/x",
            ImportError("Install s3fs to access S3"),
            "sink URI 's3://bucket/x' needs packages that are not installed. Run pip install "
            "'cdc-sink-cloudstorage[s3]'",
        ),
        (
            "azure://box/x",
            ImportError("Install adlfs"),
            "sink URI 'azure://box/x' needs packages that are not installed. Run pip install "
            "'cdc-sink-cloudstorage[azure]'",
        ),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    cloud: CloudRig, monkeypatch: pytest.MonkeyPatch, uri: str, raised: Exception, sentence: str
) -> None:
    monkeypatch.setattr(fsspec, "get_filesystem_class", Mock(side_effect=raised))
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=uri).check()
    assert str(refused.value) == sentence


@pytest.mark.parametrize("path", ["..", "../up", "x/./y", "x#y/.."])
def test_a_path_that_clients_would_shorten_is_refused(cloud: CloudRig, path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cloud.destination(uri=f"s3://bucket/{path}").check()
    assert str(refused.value) == (
        f"sink URI 's3://bucket/{path}' has '.' or '..' in its path, which stores do not resolve. Remove it"
    )


def test_every_scheme_is_one_of_a_store_that_shows_only_whole_objects() -> None:
    (registration,) = cdc_register_sinks()
    assert {*uris._PROTOCOLS, "file"} == set(registration.schemes)
