"""The connections of a process to a progress store: one bounded pool for everything in it that asks the same store."""

from __future__ import annotations

import os
import threading
import weakref

import sqlalchemy as sa

from cdc_core.store.opening import open_engine, sqlite_file

__all__ = ["Connections"]


class _Pool:
    """An engine of this process, and how many use it."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self.users = 0
        self.pid = os.getpid()


_lock = threading.RLock()  # a thread that holds it may collect a user as garbage
_shared: dict[str, _Pool] = {}


class Connections:
    """One user of the connections to *url*. They are closed with the last one, at `close` or when it is collected.

    All users in a process share one engine, and so a pool. A user of a SQLite file, or *alone*, has an engine of its
    own. Nothing is connected before the first use. Raises: ConfigError for an invalid URL.
    """

    def __init__(self, url: str, *, alone: bool) -> None:
        with _lock:
            if alone or sqlite_file(url) is not None:
                self._pool = _Pool(url)
            else:
                self._pool = _shared[url] = _shared.get(url) or _Pool(url)
            self._pool.users += 1
        self.close = weakref.finalize(self, _let_go, url, self._pool)
        self.close.atexit = False  # the connections of a fork are its parent's

    @property
    def engine(self) -> sa.Engine:
        return self._pool.engine

    @property
    def are_mine(self) -> bool:
        """Whether this process opened them: after a fork they belong to the parent."""
        return self._pool.pid == os.getpid()


def _let_go(url: str, pool: _Pool) -> None:
    with _lock:
        pool.users -= 1
        if pool.users:
            return
        if _shared.get(url) is pool:
            del _shared[url]
    pool.engine.dispose(close=pool.pid == os.getpid())


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)
