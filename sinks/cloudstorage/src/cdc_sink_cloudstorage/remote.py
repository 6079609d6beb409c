"""Object stores, through fsspec."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import fsspec

from cdc_core import CdcError, ConfigError, RetryableSinkError, TerminalSinkError
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.store import Chunk, Staged, Store
from cdc_sink_cloudstorage.store_problem import NOT_STORED, NotStoredError, StoreProblem, os_problem
from cdc_sink_cloudstorage.temporary_names import TemporaryNames

T = TypeVar("T")
_REASON_LENGTH = 300


class _SinglePut(Staged):
    """A body that `publish` uploads with one put."""

    def __init__(self, store: FsspecStore, path: str, chunks: Sequence[Chunk]) -> None:
        self._store = store
        self._path = path
        self._body = b"".join(chunks)

    def publish(self) -> None:
        self._store.publish(self._path, self._body)

    def discard(self) -> None:
        self._body = b""


class FsspecStore(Store):
    """Writes each object with one put. An object store shows such an object only when it is whole.

    A status of success says nothing: a proxy may have answered. A store checks that the answer is its own, see `_put`.
    A put is `pipe_file` and never an open file: leaving the `with` block of an open file after an error would publish
    an incomplete object.
    """

    max_name_bytes = 1024

    def __init__(self, uri: str, options: CloudStorageOptions, *, shown: str, temporary_names: TemporaryNames) -> None:
        """*shown* is *uri* without secrets, for messages."""
        self._uri = uri
        self._options = options
        self._shown = shown
        self._temporary_names = temporary_names
        self._lock = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._running: set[Future[Any]] = set()
        self._closed = False

    @staticmethod
    def new_client(options: CloudStorageOptions) -> Any:  # noqa: ARG004 (stores override this)
        """Return a file system of fsspec that shares no connections with others. Raises: OptionError."""
        return fsspec.filesystem("memory")

    def check(self) -> None:
        try:
            self._check()
        except ConfigError:
            raise
        except Exception as error:
            problem = NOT_STORED if isinstance(error, NotStoredError) else self._problem(error)
            if problem is not None:
                raise problem.refusal(self._shown) from None
            reason = self._masked(_first_line(error))
            raise ConfigError(
                f"sink {self._shown} cannot be listed: {reason}. Check that it exists, and that the credentials in the"
                " environment have access to it",
                repairable=True,
            ) from None

    def stage(self, path: str, chunks: Sequence[Chunk]) -> Staged:
        return _SinglePut(self, path, chunks)

    def publish(self, path: str, body: bytes) -> None:
        """Make *body* visible at *path*, with one put."""
        self._translate_errors(f"{self._shown}/{path}", lambda: self._put(path, body))

    def sweep(self) -> None:
        """Do nothing: a single put leaves nothing unfinished."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
            running = list(self._running)
        for future in running:
            future.cancel()
        if opened is not None:
            with contextlib.suppress(Exception):  # a connection that cannot be closed costs no data
                self._disconnect(opened[0])

    @property
    def _place(self) -> tuple[Any, str]:
        """The file system and the root in it. Some clients connect here."""
        with self._lock:
            if self._closed:
                raise TerminalSinkError("the cloud-storage sink is closed")
            if self._opened is None:
                fs = self.new_client(self._options)
                self._opened = fs, fs._strip_protocol(self._uri).rstrip("/")
            return self._opened

    def _disconnect(self, fs: Any) -> None:
        """Close the client's connections."""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* on the client's event loop and return its result. `close` cancels it."""
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

    def _problem(self, error: BaseException) -> StoreProblem | None:  # noqa: ARG002 (stores override this)
        """Return what *error* of the client means, None when that is not known."""
        return None

    def _check(self) -> None:
        fs, root = self._place
        with contextlib.suppress(FileNotFoundError):  # the first put creates it
            fs.ls(root, detail=False)

    def _put(self, path: str, body: bytes) -> Any:
        """Send *body* and return the client's answer. Raises: NotStoredError for an answer that is not the store's."""
        fs, root = self._place
        if fs.async_impl:
            return self._run(fs._pipe_file(f"{root}/{path}", body))
        return fs.pipe_file(f"{root}/{path}", body)

    def _translate_errors(self, place: str, action: Callable[[], T]) -> T:
        """Run *action*. Raises: the sink's own errors, which name *place*, instead of the client's.

        Clients raise all kinds of errors. Those that are not known are retried, but not forever.
        """
        try:
            return action()
        except CdcError:
            raise
        except Exception as error:
            problem = NOT_STORED if isinstance(error, NotStoredError) else self._problem(error)
            if problem is None and isinstance(error, OSError):
                problem = os_problem(error)
            if problem is not None:
                raise problem.failure(place) from None
            reason = self._masked(f"{type(error).__name__}: {_first_line(error)}")
            raise RetryableSinkError(f"cannot write {place}: {reason}", outage=False) from None

    def _masked(self, text: str) -> str:
        return text.replace(self._uri, self._shown)


def _first_line(error: BaseException) -> str:
    """Return the first line of *error*, shortened: clients append whole responses of the service."""
    lines = (str(error) or type(error).__name__).splitlines()
    return lines[0][:_REASON_LENGTH]
