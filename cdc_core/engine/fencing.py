"""Fencing: one driver runs a changefeed, and what earlier attempts still do delivers nothing and ends.

On one host everything is a file lock in the state directory. So it works between a driver, Spark's planner process and
Python workers that share nothing else, and the kernel cleans up after a process that is killed. Tasks of an earlier
attempt on any host begin no call of the sink a moment after a newer epoch is in the store: see `CHECK_VALID_S`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cdc_core.errors import RetryableError
from cdc_core.rows import RowBatch
from cdc_core.sink import Flushed, Sink, SliceInfo
from cdc_core.telemetry.stages import SINK, Stages

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

_IDLE_LIMIT_S = 60.0
_POLL_S = 0.05


class RunLock:
    """Held by the one driver that runs a changefeed from a state directory; `holder` is its process id."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock and return True, or return False at once when another live process holds it.

        Raises: RetryableError when the file cannot be written, such as on a full disk.
        """
        file = -1
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        except OSError as error:
            if file >= 0:
                os.close(file)
            if isinstance(error, BlockingIOError):
                return False
            raise RetryableError(f"lock '{self._path}' cannot be written: {error.strerror}") from error
        self._file = file
        return True

    def release(self) -> None:
        """Let others take the lock; do nothing when it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def holder(self) -> str:
        return self._path.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def at_work(path: Path, *, run_dir: Path) -> Iterator[None]:
    """Hold a share of the tasks' lock while a task of the attempt with directory *run_dir* reads, writes or commits.

    A JVM outlives its driver for a moment and may still start tasks. A task that comes after a newer attempt made its
    directory is refused; one that came before holds the lock, and the newer attempt waits for it. Raises:
    RetryableError when refused.

    A process on another host, or of another user, may not have the driver's state directory. Then there is nothing to
    hold: only the epoch in the store and Spark's own bookkeeping of running tasks apply.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, PermissionError):
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        if _newer_than(run_dir):
            raise RetryableError(f"attempt {run_dir.name} was superseded; its tasks have stopped")
        yield
    finally:
        os.close(file)


def is_idle(path: Path) -> bool:
    """Return whether no process on this host is `at_work`.

    A task of an earlier attempt that is still alive could emit an old version of a row, or an old mark, after a newer
    one: no attempt may begin before this is true. Asked after the new attempt has made its directory.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(file)


def await_idle(path: Path, *, owner: str, pause: Callable[[float], object] = time.sleep) -> None:
    """Return when `is_idle`, after at most a minute. *pause* waits for so many seconds, or raises to end the wait.

    Raises: RetryableError that names *owner* when a task is still alive.
    """
    deadline = time.monotonic() + _IDLE_LIMIT_S
    while not is_idle(path):
        if time.monotonic() > deadline:
            raise RetryableError(
                f"tasks of an earlier attempt of {owner} are still alive and hold {path}; kill their processes if they"
                " do not end on their own"
            )
        pause(_POLL_S)


def _newer_than(run_dir: Path) -> bool:
    try:
        names = os.listdir(run_dir.parent)
    except (FileNotFoundError, PermissionError):
        return False
    return any(name.isdecimal() and int(name) > int(run_dir.name) for name in names)


CHECK_VALID_S = 0.2
"""How long after the begin of a newer attempt a task may begin its last call."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Continues while a process is stopped, and with BOOTTIME also while its host sleeps."""


class EpochCheck:
    """Whether attempt *epoch* of changefeed *name* may emit. It lives in one process of the attempt.

    It reads *store* at most every 200 ms, so a newer attempt is noticed within this time of its begin.

    Of two tasks of one attempt at the same slice, both may emit. Spark begins the second one when the executor of the
    first is frozen or out of reach: a slice is read again as it was (see `SliceReader.read`), so what the first one
    emits late are repeats.
    """

    def __init__(self, store: ProgressStore, *, name: str, epoch: int) -> None:
        self.store = store
        self._name = name
        self._epoch = epoch
        self._valid_until = float("-inf")

    def require_newest(self) -> None:
        """Return when the attempt may emit. Raises: FencedError; RetryableError when the store cannot be read."""
        now = time.clock_gettime(_CLOCK)
        if now >= self._valid_until:
            self.store.changefeeds.require_newest(self._name, self._epoch)
            self._valid_until = now + CHECK_VALID_S  # not later: the process may have been stopped since

    def close(self) -> None:
        self.store.close()


class FencedSink(Sink):
    """Passes on calls to *sink* as long as *require_newest* raises nothing. What a call repeats asks it too.

    What it cannot prevent: a process that is stopped inside a call of *sink*, and continues after a newer attempt has
    begun, completes that call.
    """

    def __init__(self, sink: Sink, require_newest: Callable[[], None], stages: Stages | None = None) -> None:
        """*stages* are those of the task, which shows what the sink repeats."""
        super().__init__(sink.context)
        self._sink = sink
        self._require_newest = require_newest
        self._stages = stages or Stages(SINK)
        self._stages.before_repeating = require_newest

    def begin(self, slice_: SliceInfo) -> None:
        with self._fenced():
            self._sink.begin(slice_)

    def admit(self, topic: str) -> str | None:
        with self._fenced():
            return self._sink.admit(topic)

    def emit(self, rows: RowBatch) -> None:
        with self._fenced():
            self._sink.emit(rows)

    def flush(self) -> Flushed:
        with self._fenced():
            return self._sink.flush()

    def _fenced(self) -> AbstractContextManager[None]:
        """Return what surrounds a call. Raises: as *require_newest*."""
        self._require_newest()
        return self.context.calls.observed_by(self._stages)
