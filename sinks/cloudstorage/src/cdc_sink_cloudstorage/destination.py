"""From the URI of a sink to its store."""

from __future__ import annotations

import os
from urllib.parse import SplitResult, unquote, urlsplit

import fsspec

from cdc_core.errors import ConfigError
from cdc_sink_cloudstorage.local import LocalStore
from cdc_sink_cloudstorage.remote import FsspecStore
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.temporaries import Temporaries

__all__ = ["open_store"]

_ALIASES = {"azure": "az"}
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}


def open_store(uri: str, *, temporaries: Temporaries) -> Store:
    """Return the store that *uri* names, without connecting to it.

    Raises: ConfigError when the URI names no place, or when no file system for its scheme is installed.
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ConfigError("the sink's URI is malformed: write it as scheme://place/path") from None
    if parts.scheme == "file":
        return LocalStore(_local_path(uri, parts), temporaries=temporaries)
    protocol = _ALIASES.get(parts.scheme, parts.scheme)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    if not parts.netloc:
        raise ConfigError(f"sink URI '{shown}' names no bucket or host: write {parts.scheme}://name/path")
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError:
        package = _PACKAGES.get(protocol, f"the fsspec implementation of '{protocol}'")
        raise ConfigError(
            f"sink URI '{shown}' needs the package {package}, which is not installed: pip install {package}"
            if protocol in _PACKAGES
            else f"sink URI '{shown}' needs {package}, which is not installed or lacks a package: install it"
        ) from None
    except ValueError:
        raise ConfigError(
            f"sink URI '{shown}' has the scheme '{parts.scheme}', for which fsspec knows no file system: install the"
            " package that supplies it, or choose file, s3, gs or azure"
        ) from None
    plain = f"{protocol}{uri[len(parts.scheme) :]}"
    return FsspecStore(plain, protocol=protocol, shown=shown, temporaries=temporaries)


def _local_path(uri: str, parts: SplitResult) -> str:
    path = unquote(parts.path)
    if not uri.startswith("file://") or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        raise ConfigError(
            f"sink URI '{uri}' has no absolute path: write file:///absolute/directory, with three slashes"
        )
    if parts.query or parts.fragment or "\0" in path:
        raise ConfigError(f"sink URI '{uri}' has '?', '#' or NUL in its path: write '?' as %3F and '#' as %23")
    path = os.path.normpath(path)
    if path.strip("/") == "":
        raise ConfigError(f"sink URI '{uri}' names no directory: write file:///absolute/directory")
    return path
