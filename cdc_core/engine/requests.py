"""How the planners of a process learn of new rescans and traces: the driver asks the store, once for all of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cdc_core.errors import RetryableError

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["RequestFlag", "RescanFlag", "RescanRequests", "TraceFlag", "TraceRequests"]

_LOOK_S = 1.0


class RequestFlag:
    """A small file in the directory of an attempt: what was asked of it. The planner looks at it before each step."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._path = run_dir / name

    def show(self, asked: str) -> None:
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(asked)
        written.replace(self._path)

    def look(self) -> str:
        """Return what was shown last, at first nothing."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return ""


class RescanFlag(RequestFlag):
    """Which rescans wait. When it changes, the planner asks the store."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir, "rescans")


class TraceFlag(RequestFlag):
    """What is to be traced, as `Traces.active_traces` says it."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir, "traces")


class _Answers:
    """What one store said last of the requests to all changefeeds. For the threads of a process.

    *ask* asks it: of each changefeed a text that changes with its requests.
    """

    def __init__(self, ask: Callable[[ProgressStore], Mapping[str, str]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._ask_at = 0.0
        self._waiting: Mapping[str, str] = {}

    def of(self, name: str, store: ProgressStore) -> str:
        """Return what is asked of changefeed *name*; asks *store* once a second at most.

        While another thread asks, and while the store is out of reach, it is what the store said before.
        """
        if time.monotonic() >= self._ask_at and self._lock.acquire(blocking=False):
            try:
                with suppress(RetryableError):  # whatever cannot go on without the store will say so
                    self._waiting = self._ask(store)
                self._ask_at = time.monotonic() + _LOOK_S
            finally:
                self._lock.release()
        return self._waiting.get(name, "")


class _Requests:
    """Tells the planner of changefeed *name* by *flag* what is asked of it, as *answers* say."""

    def __init__(self, name: str, store: ProgressStore, flag: RequestFlag, answers: _Answers) -> None:
        self._name = name
        self._store = store
        self._flag = flag
        self._answers = answers
        self._shown = ""

    def look(self) -> None:
        """Pass on what has changed. Called a few times a second. Raises: TerminalError as the store does."""
        asked = self._answers.of(self._name, self._store)
        if asked != self._shown:
            self._flag.show(asked)
            self._shown = asked


_rescans: WeakValueDictionary[str, _Answers] = WeakValueDictionary()
_traces: WeakValueDictionary[str, _Answers] = WeakValueDictionary()


class RescanRequests(_Requests):
    """Tells the planner of changefeed *name*, in the attempt with directory *run_dir*, of rescans that wait."""

    def __init__(self, name: str, store: ProgressStore, run_dir: Path) -> None:
        answers = _rescans.setdefault(store.url, _Answers(lambda store: store.all_waiting_rescans()))
        super().__init__(name, store, RescanFlag(run_dir), answers)


class TraceRequests(_Requests):
    """Likewise, of traces that are active."""

    def __init__(self, name: str, store: ProgressStore, run_dir: Path) -> None:
        answers = _traces.setdefault(store.url, _Answers(lambda store: store.active_traces()))
        super().__init__(name, store, TraceFlag(run_dir), answers)
