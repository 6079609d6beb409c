"""From the URI of a sink to its store, and to the file system that readers use."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import fsspec

from cdc_core import ConfigError, SinkContext, masked_uri
from cdc_sink_cloudstorage.authentication import check_credentials
from cdc_sink_cloudstorage.local import LocalStore
from cdc_sink_cloudstorage.options import CloudStorageOptions, options_of
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.temporary_names import TemporaryNames

_PROTOCOLS = {"s3": "s3", "gs": "gs", "azure": "az", "azure-blob": "az", "azure-storage": "az", "memory": "memory"}
"""The fsspec protocol of each scheme. All of these show an object only when it is whole; other file systems do not."""
_EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The place of the files, for fsspec. `shown` is `uri` without secrets, for messages."""

    protocol: str
    uri: str
    shown: str


def store_of(context: SinkContext) -> Store:
    """Return the store that a sink with *context* writes to. Raises: as `open_store`."""
    names = TemporaryNames(changefeed=context.changefeed, epoch=context.epoch)
    return open_store(context.uri, options_of(context), temporary_names=names)


def open_store(uri: str, options: CloudStorageOptions, *, temporary_names: TemporaryNames) -> Store:
    """Return the store at *uri*, with the credentials of *options*, without connecting to it.

    Raises: ConfigError when the URI does not name a place, when the credentials do not fit it, or when the package for
    its scheme is not installed.
    """
    parts = _parts(uri)
    if parts.scheme == "file":
        check_credentials(options, "file", shown=masked_uri(uri))
        return LocalStore(_local_path(uri, parts), temporary_names=temporary_names)
    place = _remote_place(uri, parts)
    check_credentials(options, place.protocol, shown=place.shown)
    store = _store_class(place.protocol)
    return store(place.uri, options, shown=place.shown, temporary_names=temporary_names)


def open_file_system(uri: str, options: CloudStorageOptions) -> tuple[Any, str]:
    """Return fsspec's file system of *uri* and the root in it, for reading. Some clients connect here.

    Raises: as `open_store`.
    """
    parts = _parts(uri)
    if parts.scheme == "file":
        return fsspec.filesystem("file"), _local_path(uri, parts)
    place = _remote_place(uri, parts)
    check_credentials(options, place.protocol, shown=place.shown)
    fs = _client_for_reading(_store_class(place.protocol), options)
    return fs, fs._strip_protocol(place.uri).rstrip("/")


@functools.lru_cache(maxsize=8)
def _client_for_reading(store: type[FsspecStore], options: CloudStorageOptions) -> Any:
    """Return a client that stays open in this process. Readers share it and close nothing."""
    return store.new_client(options)


def forget_clients() -> None:
    """Have the next reader open another client: this one may have credentials that were renewed elsewhere."""
    _client_for_reading.cache_clear()


def _store_class(protocol: str) -> type[FsspecStore]:
    """Return the class for *protocol*. Its module imports the client, so it is imported only here."""
    match protocol:
        case "s3":
            from cdc_sink_cloudstorage.s3 import S3Store

            return S3Store
        case "gs":
            from cdc_sink_cloudstorage.gcs import GcsStore

            return GcsStore
        case "az":
            from cdc_sink_cloudstorage.azure import AzureStore

            return AzureStore
    return FsspecStore


def _parts(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        raise ConfigError("the sink's URI is malformed. Write it as scheme://place/path") from None


def _remote_place(uri: str, parts: SplitResult) -> _Place:
    protocol = _PROTOCOLS[parts.scheme]
    path = f"{parts.path}#{parts.fragment}" if parts.fragment else parts.path
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path.rstrip('/')}"
    if not parts.netloc:
        raise ConfigError(f"sink URI '{shown}' does not name a bucket. Write {parts.scheme}://bucket/path")
    if parts.password is not None:
        raise ConfigError(
            f"sink URI '{shown}' contains a password, which would become part of the bucket's name. Remove the"
            " password, and pass the credentials as parameters or in the environment"
        )
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise ConfigError(f"sink URI '{shown}' has '.' or '..' in its path, which stores do not resolve. Remove it")
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError:
        raise ConfigError(
            f"sink URI '{shown}' needs packages that are not installed. Run pip install "
            f"'cdc-sink-cloudstorage[{_EXTRAS[protocol]}]'"
        ) from None
    return _Place(protocol=protocol, uri=f"{protocol}{uri[len(parts.scheme) :]}", shown=shown)


def _local_path(uri: str, parts: SplitResult) -> str:
    path, shown = unquote(parts.path), masked_uri(uri)
    if not uri.startswith("file://") or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(
            f"sink URI '{shown}' does not have an absolute path. Write file:///absolute/directory, with three slashes"
        )
    if parts.query or parts.fragment or "\0" in path:
        raise ConfigError(f"sink URI '{shown}' contains '?', '#' or NUL in its path. Write '?' as %3F and '#' as %23")
    path = os.path.normpath(path)
    if path.strip("/") == "":
        raise ConfigError(f"sink URI '{shown}' does not name a directory. Write file:///absolute/directory")
    return path
