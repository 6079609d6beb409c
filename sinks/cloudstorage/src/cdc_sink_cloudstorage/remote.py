"""Object stores and other file systems, through fsspec."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import fsspec
from fsspec.core import url_to_fs

from cdc_core.errors import CdcError, ConfigError, RetryableSinkError
from cdc_sink_cloudstorage.store import IN_PROGRESS, Chunk, Staged, Store, failure
from cdc_sink_cloudstorage.temporaries import Temporaries

__all__ = ["PUT_IS_ATOMIC", "FsspecStore"]

PUT_IS_ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"})
"""Protocols whose `pipe_file` shows an object only when whole; a multipart upload completes in its last request."""

T = TypeVar("T")


class _Held(Staged):
    """A body that one put brings to the store and shows."""

    def __init__(self, store: FsspecStore, path: str, chunks: Sequence[Chunk]) -> None:
        self._store = store
        self._path = path
        self._body = b"".join(chunks)

    def publish(self) -> None:
        self._store.publish(self._path, self._body)

    def discard(self) -> None:
        self._body = b""


class FsspecStore(Store):
    """Writes objects with one put where that is atomic, else as a temporary file that is moved into place.

    A put is `pipe_file`, never an open file: leaving the `with` block of one after an error would publish a torso.
    """

    name_limit = 1024

    def __init__(self, uri: str, *, protocol: str, shown: str, temporaries: Temporaries) -> None:
        """*shown* is *uri* without secrets, for messages."""
        self._uri = uri
        self._protocol = protocol
        self._shown = shown
        self._temporaries = temporaries

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system and the root in it. Some clients connect here."""
        fs, root = url_to_fs(self._uri)
        return fs, root.rstrip("/")

    def check(self) -> None:
        try:
            fs, root = self._place
            if not self._atomic and type(fs).mv is fsspec.AbstractFileSystem.mv:
                raise ConfigError(
                    f"sink {self._shown} cannot be used because {self._protocol}:// has no way to move a whole file"
                    " into place: choose a file system or object store that has"
                )
            fs.invalidate_cache()
            self._list_nearest(fs, root)
        except ConfigError:
            raise
        except Exception as error:
            reason = self._masked(str(error) or type(error).__name__)
            raise ConfigError(
                f"sink {self._shown} cannot be listed: {reason}; check that it exists and that the credentials in the"
                " environment may use it"
            ) from None

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        return _Held(self, path, chunks)

    def publish(self, path: str, body: bytes) -> None:
        """Make *body* visible at *path*, in one go."""
        self._translated(f"{self._shown}/{path}", lambda: self._put(path, body))

    def sweep(self) -> None:
        if not self._atomic:
            self._translated(f"{self._shown}/{IN_PROGRESS}", self._sweep)

    @property
    def _atomic(self) -> bool:
        return self._protocol in PUT_IS_ATOMIC

    def _list_nearest(self, fs: Any, root: str) -> None:
        """List the root; while it does not exist yet, list what it would be created in."""
        try:
            fs.ls(root, detail=False)
        except FileNotFoundError:
            if self._protocol == "memory":
                return
            bucket = root.split("/")[0] if self._atomic else fs._parent(root)
            fs.ls(bucket, detail=False)

    def _put(self, path: str, body: bytes) -> None:
        fs, root = self._place
        final = f"{root}/{path}"
        if self._atomic:
            fs.pipe_file(final, body)
            return
        temporary = f"{root}/{IN_PROGRESS}/{self._temporaries.new(uuid.uuid4().hex)}"
        fs.makedirs(f"{root}/{IN_PROGRESS}", exist_ok=True)
        fs.makedirs(final.rpartition("/")[0], exist_ok=True)
        fs.invalidate_cache()
        if fs.exists(final) and fs.size(final) == len(body):
            return  # some moves refuse to replace; what is visible is whole, and the same name means the same content
        fs.pipe_file(temporary, body)
        fs.mv(temporary, final)

    def _sweep(self) -> None:
        fs, root = self._place
        fs.invalidate_cache()
        directory = f"{root}/{IN_PROGRESS}"
        if fs.exists(directory):
            names = [path.rpartition("/")[2] for path in fs.ls(directory, detail=False)]
            for name in self._temporaries.of_dead_runs(names):
                fs.rm_file(f"{directory}/{name}")

    def _translated(self, place: str, action: Callable[[], T]) -> T:
        """Run *action*; clients raise what they like, and all of it may heal unless the table says otherwise."""
        try:
            return action()
        except CdcError:
            raise
        except OSError as error:
            raise failure(place, error) from None
        except Exception as error:
            reason = self._masked(f"{type(error).__name__}: {error}")
            raise RetryableSinkError(f"cannot write {place}: {reason}") from None

    def _masked(self, text: str) -> str:
        return text.replace(self._uri, self._shown)
