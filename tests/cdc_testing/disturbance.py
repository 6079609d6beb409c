"""The faults that the sink suite asks for, inflicted on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class DisturbedServer(Protocol):
    """A server that runs in a process of its own."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class ServerDisturbance:
    """Breaks and stalls a server. *end* is called to break it, by default `kill`."""

    def __init__(self, server: DisturbedServer, end: Callable[[], None] | None = None) -> None:
        self._server = server
        self._end = end or server.kill

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The server has ended. Afterwards another process has its address and its data."""
        self._end()
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The server keeps its connections and does not respond."""
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()
