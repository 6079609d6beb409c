"""The database of the progress store: how it is opened, and the transactions of everything that is kept there."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import sqlalchemy as sa

from cdc_core.errors import ConfigError, FencedError, RetryableError, TerminalError
from cdc_core.masking import mask, masked_uri, secret_forms, uri_secrets
from cdc_core.store.event_values import Event, log_event
from cdc_core.store.opening import CONNECTIONS, WAIT_S, open_engine, prepare, sqlite_file
from cdc_core.store.tables import CHANGEFEEDS, update


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


T = TypeVar("T")


class Database:
    """A SQL database with the tables of the store. Picklable; safe with several threads, processes and after a fork.

    Nothing is opened before the first call, which creates or upgrades the tables.

    A process has few connections to a database that is not SQLite, whatever the number of its stores: a call waits for
    one if all are in use. With *alone* the store has connections of its own: for what cannot wait for others, and for
    what uses `release_connections`. A copy by pickling is as the original.

    Raises, everywhere: RetryableError when the database cannot be reached or is busy for too long; ConfigError when it
    was written by a newer version; TerminalError when its file was removed or replaced since this process opened it.
    """

    RECORDED = "cdc_recorded"
    """Where a connection has the events that its transaction records. They are logged when it is durable."""

    def __init__(self, url: str, *, alone: bool = False) -> None:
        self.url = url
        self._alone = alone
        self._path = sqlite_file(url)
        self._connections: Connections | None = None
        self._file: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "alone": self._alone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Database.__init__(self, state["url"], alone=state["alone"])

    def open(self) -> None:
        """Return when the store works. Raises: ConfigError when it cannot be created, reached or used."""
        try:
            with self.transaction():
                pass
        except RetryableError as error:
            raise ConfigError(str(error)) from error

    def close(self) -> None:
        """Close connections unless others use them. The store can be used again."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    def release_connections(self) -> None:
        """Close connections until the next call: for a process of which a host has many. Only of a store *alone*."""
        connections = self._connections
        if connections is not None and connections.are_mine and self._path is None:
            assert self._alone, "others may use the connections"
            connections.engine.dispose()

    def once_more(self, change: Callable[[sa.Connection], T]) -> T:
        """Return what *change* returns in a transaction: in a second one if another process adds the same row."""
        try:
            with self.transaction() as connection:
                return change(connection)
        except RetryableError as error:
            if not isinstance(error.__cause__, sa.exc.IntegrityError):
                raise
        with self.transaction() as connection:
            return change(connection)

    def write(self, name: str, epoch: int, **values: Any) -> None:
        with self.fenced(name, epoch, **values):
            pass

    @contextmanager
    def fenced(self, name: str, epoch: int, **values: Any) -> Iterator[sa.Connection]:
        """Write *values* in a transaction that the block continues, unless a newer attempt has taken over."""
        with self.transaction() as connection:
            mine = update(name).where(CHANGEFEEDS.c.epoch == epoch)
            if not connection.execute(mine.values(epoch=epoch, **values)).rowcount:
                raise overtaken(name, epoch)
            yield connection

    @contextmanager
    def fenced_reading(self, name: str, epoch: int) -> Iterator[sa.Connection]:
        """Read in a transaction that the block continues, unless a newer attempt has taken over."""
        with self.transaction(reading=True) as connection:
            newest = connection.execute(sa.select(CHANGEFEEDS.c.epoch).where(CHANGEFEEDS.c.name == name))
            if newest.scalar_one_or_none() != epoch:
                raise overtaken(name, epoch)
            yield connection

    @contextmanager
    def transaction(self, *, reading: bool = False) -> Iterator[sa.Connection]:
        try:
            engine = self._opened().execution_options(cdc_reading=reading)
            with engine.begin() as connection:
                recorded: list[Event] = []
                connection.info[self.RECORDED] = recorded
                yield connection
        except sa.exc.TimeoutError as error:
            raise RetryableError(
                f"progress store {self.shown} cannot be used: all {CONNECTIONS} connections of this process have been"
                f" in use for {WAIT_S:.0f} s"
            ) from error
        except sa.exc.SQLAlchemyError as error:
            reason = mask(str(getattr(error, "orig", None) or error), secret_forms(uri_secrets(self.url)))
            reason = " ".join(reason.split())
            raise RetryableError(f"progress store {self.shown} cannot be used: {reason}") from error
        except UnicodeEncodeError as error:  # half of a surrogate pair, as Python has it for bytes that are not UTF-8
            raise ConfigError(f"{error.object!a} is not Unicode text; write it in UTF-8") from error
        for event in recorded:
            log_event(event)

    def _opened(self) -> sa.Engine:
        connections = self._connections  # once: another thread may close the store
        if connections is None or not connections.are_mine:
            self.close()
            connections = Connections(self.url, alone=self._alone)
            try:
                prepare(connections.engine, shown=self.shown)
            except BaseException:
                connections.close()
                raise
            self._connections, self._file = connections, self._file_now()
        elif self._file_now() != self._file:
            raise TerminalError(
                f"progress store {self.shown} was removed or replaced while it was in use; restore it, otherwise the"
                " changefeed starts over with an initial scan"
            )
        return connections.engine

    def _file_now(self) -> tuple[int, int] | None:
        """Return the identity of the file that is the store now; None when there is none."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    @property
    def shown(self) -> str:
        """The URL without secrets; of a SQLite store its file."""
        url = sa.make_url(self.url)
        return str(url.database) if url.get_backend_name() == "sqlite" else masked_uri(self.url)


class Aggregate:
    """One kind of what is kept in *database*. Every method is one transaction, durable on return."""

    def __init__(self, database: Database) -> None:
        self._database = database


def overtaken(name: str, epoch: int) -> FencedError:
    return FencedError(
        f"changefeed '{name}': a newer attempt took over, or it was removed; this attempt (epoch {epoch}) stops, and no"
        " longer emits or saves anything"
    )
