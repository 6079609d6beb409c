"""The endpoint of a webhook, for tests: `python -m cdc_testing.webhook_app DIRECTORY PORT START`.

Speaks HTTP/2 and HTTP/1.1 over TLS. Before it answers, it writes what it accepts to the file `journal` in the
directory, so a kill loses nothing that was acknowledged. It obeys the file `faults.json` there, see
`WebhookServer.faults`, and records every request in the file `requests`, with the number of requests in flight.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import random
import socket
import stat
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import zstandard
from cdc_testing.webhook_bodies import messages_of
from hypercorn.asyncio import serve
from hypercorn.config import Config

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Faults:
    """The faults in `faults.json`, read again whenever it changed. Each *start* of the server has its own seed."""

    def __init__(self, path: Path, *, start: int) -> None:
        self._path = path
        self._start = start
        self._read: tuple[int, int] | None = None
        self._script: list[dict[str, Any]] = []
        self._random = random.Random()
        self.rules: dict[str, Any] = {}

    def next(self) -> dict[str, Any]:
        """Return the fault of the next request, empty for none."""
        state = self._path.stat()
        if (state.st_mtime_ns, state.st_ino) != self._read:
            self._read = (state.st_mtime_ns, state.st_ino)
            self.rules = json.loads(self._path.read_text())
            self._script = list(self.rules.get("script", ()))
            self._random = random.Random(f"{self.rules.get('seed')} {self._start}")
        if self._script:
            return self._script.pop(0)
        dice = self._random.random()
        for fault in self.rules.get("random", ()):
            dice -= fault["share"]
            if dice < 0:
                return dict(fault)
        return {}


class Endpoint:
    """The ASGI application."""

    def __init__(self, directory: Path, settings: dict[str, Any], *, start: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._journal = os.open(directory / "journal", flags)
        self._requests = os.open(directory / "requests", flags)
        self._faults = Faults(directory / "faults.json", start=start)
        self._in_flight: dict[tuple[str, str, str], str] = {}
        self._count = 0
        self._max_bytes = settings.get("max_bytes")
        self._accepted: set[str] | None = None
        if settings.get("deduplicates"):
            lines = (directory / "journal").read_bytes().splitlines()
            self._accepted = {json.loads(line)["identity"] for line in lines if line.endswith(b"}")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        plain = _decoded(body, headers.get("content-encoding"))
        fault = self._faults.next()
        keys = {(scope["path"], topic, key) for topic, key, _ in messages_of(plain) if topic and key}
        identity = headers.get("idempotency-key", "")
        # an attempt may overlap with an earlier attempt of the same request, which the sender may know to be lost
        shared = sorted(key[1:] for key in keys if self._in_flight.get(key, identity) != identity)
        held = not fault.get("hang") and not fault.get("late_s")  # the sender no longer waits for these
        if held:
            self._in_flight.update(dict.fromkeys(keys, identity))
            self._count += 1
        event = {
            "at": time.time(),
            "path": scope["path"],
            "query": scope["query_string"].decode(),
            "method": scope["method"],
            "http": scope["http_version"],
            "connection": scope["client"][1],
            "headers": headers,
            "body": base64.b64encode(body).decode(),
            "in_flight": self._count,
            "shared": shared,
            "fault": fault,
        }
        os.write(self._requests, json.dumps(event).encode() + b"\n")
        try:
            await self._answer(scope, receive, send, plain=plain, identity=identity, fault=fault)
        finally:
            if held:
                self._count -= 1
                for key in keys:
                    self._in_flight.pop(key, None)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, *, plain: bytes, identity: str, fault: dict[str, Any]
    ) -> None:
        if fault.get("hang"):
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if fault.get("late_s"):
            await asyncio.sleep(fault["late_s"])
        elif not await _stays(receive, fault.get("slow_s", self._faults.rules.get("slow_s", 0.0))):
            return
        status, text = fault.get("status", 200), fault.get("text", "")
        refused = self._faults.rules.get("refused_keys", {})
        if status == 200:
            for _, key, _ in messages_of(plain):
                if key in refused:
                    status, text = refused[key], f"the key {key} is refused"
        if status == 200 and self._max_bytes is not None and len(plain) > self._max_bytes:
            status, text = 413, f"at most {self._max_bytes} bytes"
        if 200 <= status < 300 and fault.get("reset") != "before":
            self._accept(scope, identity, plain)
        answer = text.encode()
        headers = [(name.encode(), value.encode()) for name, value in fault.get("headers", {}).items()]
        if fault.get("reset"):
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"100")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            _break(tuple(scope["client"]))
            return
        headers.append((b"content-length", str(len(answer)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _accept(self, scope: Scope, identity: str, plain: bytes) -> None:
        """Write the body to the journal, unless it is deduplicated."""
        if self._accepted is not None:
            if identity in self._accepted:
                return
            self._accepted.add(identity)
        accepted = {
            "path": scope["path"],
            "identity": identity,
            "content_type": dict(scope["headers"]).get(b"content-type", b"").decode(),
            "body": base64.b64encode(plain).decode(),
        }
        os.write(self._journal, json.dumps(accepted).encode() + b"\n")


async def _stays(receive: Receive, seconds: float) -> bool:
    """Wait and return whether the sender is still connected; return at once when it disconnects."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return True
    return False


def _break(client: tuple[Any, ...]) -> None:
    """Shut down the connection with *client*."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if connection.getpeername() == client:
                        connection.shutdown(socket.SHUT_RDWR)


def _decoded(body: bytes, encoding: str | None) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompress(body)
    return body


def main() -> None:
    directory, port, start = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    settings = json.loads((directory / "server.json").read_text())
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = config.errorlog = None
    config.keep_alive_max_requests = settings.get("max_requests", 1_000_000)
    config.h2_max_concurrent_streams = settings.get("max_streams", 100)
    config.alpn_protocols = settings["protocols"]
    if settings.get("certificate"):
        config.certfile, config.keyfile = settings["certificate"], settings["key"]
    if settings.get("client_authority"):
        import ssl

        config.ca_certs, config.verify_mode = settings["client_authority"], ssl.CERT_REQUIRED
    asyncio.run(serve(Endpoint(directory, settings, start=start), config))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
