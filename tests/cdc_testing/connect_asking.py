"""A client of Kafka Connect that keeps what the answers look like."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import httpx2
from cdc_testing.connect_shapes import seen

__all__ = ["Asking", "Server"]

_LATER = ("conflicting operation", "stale configuration", "rebalance is expected")
"""What a worker says that shares out its connectors anew. Clients ask again."""


class Server(Protocol):
    """A server to ask. `good`, `broken` and `wrong` are configurations: one that runs, one that fails while it runs,
    and one that lacks a key. `part` is a plugin that is no connector, `logger` a logger.
    """

    url: str
    good: Mapping[str, str]
    broken: Mapping[str, str]
    wrong: Mapping[str, str]
    part: str
    logger: str

    def wait(self, name: str, until: str) -> None:
        """Return when the connector and its tasks have the state *until*, or, with `offset`, when there is one; when
        there is no such connector, with `gone`.
        """


class Asking:
    """Asks *server*. `answers` has what they look like, by the requests."""

    def __init__(self, server: Server) -> None:
        self.answers: dict[str, dict[str, str]] = {}
        self.server = server
        self.client = httpx2.Client(base_url=server.url, timeout=60, limits=httpx2.Limits(max_keepalive_connections=0))

    def ask(self, method: str, path: str, when: str = "", *, json: Any = None, **more: Any) -> httpx2.Response:
        return self.ask_of(method, path, "", "", when, json=json, **more)

    def ask_of(self, method: str, path: str, shown: str, name: str, when: str = "", **more: Any) -> httpx2.Response:
        """Ask for *name*, which is called *shown*."""
        request = f"`{method} {path.format(shown)}`{' ' if when else ''}{when}"
        assert request not in self.answers, request
        answer = self.client.request(method, path.format(name), **more)
        while answer.status_code in (409, 500) and any(text in answer.text for text in _LATER):
            time.sleep(0.1)
            answer = self.client.request(method, path.format(name), **more)
        self.answers[request] = seen(answer, base=self.server.url)
        return answer
