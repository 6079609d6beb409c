"""Read access to the files that a sink has written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from fsspec.implementations.local import LocalFileSystem

from cdc_core import CdcError, RetryableSinkError, TerminalSinkError, masked_uri
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.store import IN_PROGRESS, Store
from cdc_sink_cloudstorage.uris import forget_clients, open_file_system

T = TypeVar("T")


class StoredBodies:
    """Lists and reads the files below a root. Picklable; connects when first used.

    Raises, everywhere: ConfigError for a URI that does not name a place; RetryableSinkError when the place cannot be
    read.
    """

    def __init__(self, uri: str, options: CloudStorageOptions) -> None:
        self._uri = uri
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"_uri": self._uri, "_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"StoredBodies({masked_uri(self._uri)!r})"

    @property
    def shown(self) -> str:
        """The root without secrets, for messages."""
        return masked_uri(self._uri)

    def paths(self) -> list[str]:
        """Return the paths below the root of all files that are visible, sorted."""

        def find() -> list[str]:
            fs, root = self._place
            fs.invalidate_cache()
            found = _local_files(root) if isinstance(fs, LocalFileSystem) else fs.find(root)
            below = (path[len(root) :].lstrip("/") for path in found)
            return sorted(path for path in below if path and not path.startswith(f"{IN_PROGRESS}/"))

        return self._translate_errors("", find)

    def body(self, path: str) -> bytes | None:
        """Return the content of the file at *path* below the root, None when there is no such file."""

        def read() -> bytes | None:
            fs, root = self._place
            try:
                content: bytes = fs.cat_file(f"{root}/{path}")
            except FileNotFoundError:
                return None
            return content

        return self._translate_errors(path, read)

    def bodies(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the contents of several files, read at the same time where the client can do that."""

        def read() -> list[bytes | None]:
            fs, root = self._place
            if not getattr(fs, "async_impl", False):
                return [self.body(path) for path in paths]
            full = [f"{root}/{path}" for path in paths]
            found: dict[str, Any] = fs.cat(full, on_error="return") if full else {}
            contents = [found.get(path, found.get(path.lstrip("/"))) for path in full]
            for content in contents:
                if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                    raise content
            return [content if isinstance(content, bytes) else None for content in contents]

        return self._translate_errors("", read)

    def holds(self, path: str, sha256: str) -> bool | None:
        """Return whether the file at *path* has content with this checksum, None when there is no such file.

        Also returns False when the file cannot be read: the sink's credentials may have no permission to read.
        """
        try:
            content = self.body(path)
        except RetryableSinkError:
            return False
        return None if content is None else hashlib.sha256(content).hexdigest() == sha256

    def put_once(self, store: Store, path: str, body: bytes) -> None:
        """Return when *store* has *body* at *path*, which has no other content, ever. Raises: as `Store`.

        It may be there already, and the store may refuse to replace it even by the same, as where retention is set.
        """
        try:
            store.put(path, [body])
        except (RetryableSinkError, TerminalSinkError) as error:
            outage = isinstance(error, RetryableSinkError) and error.outage
            if outage or not self.holds(path, hashlib.sha256(body).hexdigest()):
                raise

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return open_file_system(self._uri, self._options)

    def _translate_errors(self, path: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except CdcError:
            raise
        except Exception as error:
            self.__dict__.pop("_place", None)  # the next client looks up the credentials of the environment again
            forget_clients()
            place = f"{self.shown}/{path}" if path else self.shown
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number is not None else str(error) or type(error).__name__
            raise RetryableSinkError(f"cannot read {place}: {reason.replace(self._uri, self.shown)}") from None


def _local_files(root: str) -> Iterator[str]:
    """Yield the files below *root*. Raises: OSError for a directory that cannot be listed; fsspec leaves it out."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # it may be removed at any time
            raise error

    for directory, _, names in os.walk(root, onerror=refuse, followlinks=True):
        yield from (os.path.join(directory, name) for name in names)
