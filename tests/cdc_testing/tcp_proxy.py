"""A TCP proxy before a server: a network that a test can cut, with or without a word to either side."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_BYTES = 1 << 16


class TcpProxy:
    """Passes connections on to the server of *url*, from entering to leaving; `url` is the same through the proxy.

    After `cut` nothing passes and nobody is told: connections stay open and bytes are held back, new connections are
    accepted and get no answer. After `refuse` connections are reset, new ones too. `mend` ends either: what was open
    during a cut is reset, as by a firewall that has forgotten it.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._behind = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}".lstrip("@")))
        self._passing = threading.Event()
        self._passing.set()
        self._refusing = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="TCP proxy", daemon=True)

    def cut(self) -> None:
        self._passing.clear()

    def refuse(self) -> None:
        self._refusing = True
        self._reset_all()

    def mend(self) -> None:
        self._refusing = False
        if not self._passing.is_set():
            self._reset_all()
        self._passing.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self._reset_all()
        self._passing.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                _reset(client)
                continue
            with self._lock:
                self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._passing.wait()
        try:
            server = socket.create_connection(self._behind)
        except OSError:
            self._close(client)
            return
        with self._lock:
            self._open.add(server)
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        self._close(client, server)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(_BYTES):
                self._passing.wait()
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _close(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open.difference_update(ends)
        for end in ends:
            end.close()

    def _reset_all(self) -> None:
        with self._lock:
            ends = list(self._open)
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _reset(client: socket.socket) -> None:
    """Close the connection in the way that the other side sees as a reset."""
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()
