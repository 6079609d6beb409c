"""Object stores, through fsspec."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from fsspec.core import url_to_fs

from cdc_core.errors import CdcError, ConfigError, RetryableSinkError, TerminalSinkError
from cdc_sink_cloudstorage.store import Chunk, Staged, Store, failure
from cdc_sink_cloudstorage.temporaries import Temporaries
from cdc_sink_cloudstorage.trouble import Trouble

__all__ = ["FsspecStore"]

T = TypeVar("T")
_REASON_LENGTH = 300


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
    """Writes objects with one put, which in an object store shows an object only when whole.

    A put is `pipe_file`, never an open file: leaving the `with` block of one after an error would publish a torso.
    """

    name_limit = 1024

    def __init__(
        self,
        uri: str,
        *,
        shown: str,
        temporaries: Temporaries,
        open_client: Callable[[], Any] | None = None,
    ) -> None:
        """*shown* is *uri* without secrets, for messages. Without *open_client* fsspec makes the file system."""
        self._uri = uri
        self._shown = shown
        self._temporaries = temporaries
        self._open_client = open_client
        self._lock = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._running: set[Future[Any]] = set()
        self._closed = False

    def check(self) -> None:
        try:
            self._check()
        except ConfigError:
            raise
        except Exception as error:
            trouble = self._trouble(error)
            if trouble is not None:
                raise trouble.as_refusal(self._shown) from None
            reason = self._masked(_one_line(error))
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
        """Remove nothing: one put leaves nothing half written."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
            running = list(self._running)
        for future in running:
            future.cancel()
        if opened is not None:
            with contextlib.suppress(Exception):  # nothing is lost with a connection
                self._disconnect(opened[0])

    @property
    def _place(self) -> tuple[Any, str]:
        """The file system and the root in it. Some clients connect here."""
        with self._lock:
            if self._closed:
                raise TerminalSinkError("the cloud-storage sink is closed")
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> tuple[Any, str]:
        if self._open_client is None:
            fs, root = url_to_fs(self._uri)
        else:
            fs = self._open_client()
            root = fs._strip_protocol(self._uri)
        return fs, root.rstrip("/")

    def _disconnect(self, fs: Any) -> None:
        """Close the client's connections."""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* does on the client's event loop. `close` cancels it."""
        fs, _ = self._place
        future = asyncio.run_coroutine_threadsafe(work, fs.loop)
        with self._lock:
            self._running.add(future)
            if self._closed:
                future.cancel()
        try:
            return future.result()
        except CancelledError:
            raise TerminalSinkError("the cloud-storage sink was closed") from None
        finally:
            with self._lock:
                self._running.discard(future)

    def _trouble(self, error: BaseException) -> Trouble | None:  # noqa: ARG002 (for stores that know)
        """Return what *error* of the client means, None when that is not known."""
        return None

    def _check(self) -> None:
        fs, root = self._place
        with contextlib.suppress(FileNotFoundError):  # the first put makes it
            fs.ls(root, detail=False)

    def _put(self, path: str, body: bytes) -> None:
        fs, root = self._place
        if fs.async_impl:
            self._run(fs._pipe_file(f"{root}/{path}", body))
        else:
            fs.pipe_file(f"{root}/{path}", body)

    def _translated(self, place: str, action: Callable[[], T]) -> T:
        """Run *action*; clients raise what they like, and all of it may heal unless the tables say otherwise."""
        try:
            return action()
        except CdcError:
            raise
        except Exception as error:
            trouble = self._trouble(error)
            if trouble is not None:
                raise trouble.as_failure(place) from None
            if isinstance(error, OSError):
                raise failure(place, error) from None
            reason = self._masked(f"{type(error).__name__}: {_one_line(error)}")
            raise RetryableSinkError(f"cannot write {place}: {reason}") from None

    def _masked(self, text: str) -> str:
        return text.replace(self._uri, self._shown)


def _one_line(error: BaseException) -> str:
    """Return the text of *error* as part of a sentence: clients append whole answers of the service."""
    lines = (str(error) or type(error).__name__).splitlines()
    return lines[0][:_REASON_LENGTH]
