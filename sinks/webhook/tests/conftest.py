"""The parts of a sink at the endpoint of the session, and a proxy in front of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from cdc_testing.webhook_rig import WebhookRig
from cdc_testing.webhook_server import WebhookServer


@pytest.fixture
def hook(webhook_server: WebhookServer) -> Iterator[WebhookRig]:
    """A rig whose parts are closed after the test. The faults of the endpoint are removed then."""
    with ExitStack() as opened:
        opened.callback(webhook_server.faults)
        yield WebhookRig(webhook_server, opened)


class Proxy:
    """A TCP proxy in front of a port. `cut` makes its present connections silent, without closing them.

    A new connection takes `connect_s` until it passes on data.
    """

    connect_s = 0.0

    def __init__(self, port: int) -> None:
        self._port = port
        self._silent: set[socket.socket] = set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Pass on no more data on the present connections."""
        self._silent.update(end for pair in self._pairs for end in pair)

    def close(self) -> None:
        for end in [self._listening, *(end for pair in self._pairs for end in pair)]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Event().wait(self.connect_s)
                pair = client, socket.create_connection(("127.0.0.1", self._port))
                self._pairs.append(pair)
                for source, target in (pair, pair[::-1]):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source not in self._silent:
                    target.sendall(data)


@pytest.fixture
def proxy(hook: WebhookRig) -> Iterator[Proxy]:
    proxy = Proxy(hook.server.port)
    yield proxy
    proxy.close()
