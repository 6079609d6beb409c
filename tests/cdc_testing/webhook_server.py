"""A real HTTPS endpoint in its own process, and a reader of what it accepted."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psutil
import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_sink_kafka.demo.servers import Certificates, make_certificates
from cdc_testing.webhook_bodies import messages_of

from cdc_core import Endpoint, SinkContext, SinkReader, StoredMessage

_LIMIT_S = 120.0
_POLL_S = 0.01


class WebhookServer:
    """Keeps its files in *directory*. After `kill` it can be started again, on the same port and with all that it had.

    It accepts requests at every path; `new_path` returns one that no other test uses. With *demand_client* a client
    needs a certificate of our authority; without *tls* it speaks plain HTTP. A connection serves *max_requests*, with
    HTTP/2 *max_streams* at a time; a body has at most *max_bytes*. If it *deduplicates*, it accepts each
    Idempotency-Key only once.
    """

    def __init__(
        self,
        directory: Path,
        *,
        tls: bool = True,
        protocols: Sequence[str] = ("h2", "http/1.1"),
        demand_client: bool = False,
        max_requests: int = 1_000_000,
        max_streams: int = 100,
        max_bytes: int | None = None,
        deduplicates: bool = False,
    ) -> None:
        self.directory = directory
        self.certificates: Certificates = make_certificates(directory / "certificates")
        self.tls = tls
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._ends = {"journal": 0, "requests": 0}
        self._found: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        settings: dict[str, Any] = {
            "protocols": list(protocols),
            "max_requests": max_requests,
            "max_streams": max_streams,
            "max_bytes": max_bytes,
            "deduplicates": deduplicates,
        }
        if tls:
            settings |= {
                "certificate": str(self.certificates.server_cert),
                "key": str(self.certificates.server_key),
                "client_authority": str(self.certificates.ca) if demand_client else None,
            }
        (directory / "server.json").write_text(json.dumps(settings))
        for name in ("journal", "requests"):
            (directory / name).touch()
        self.faults()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def uri(self, path: str = "") -> str:
        """Return the sink URI of a path, without parameters."""
        return f"webhook-{'https' if self.tls else 'http'}://localhost:{self.port}{path}"

    @staticmethod
    def new_path() -> str:
        """Return a path that no other test uses."""
        return f"/hooks/{secrets.token_hex(6)}"

    @property
    def trust(self) -> dict[str, str]:
        """The options that make a sink trust this server."""
        return {"ca_cert": base64.b64encode(self.certificates.ca.read_bytes()).decode()} if self.tls else {}

    def start(self) -> None:
        """Return when it accepts connections."""
        self._starts += 1
        command = [sys.executable, "-m", "cdc_testing.webhook_app", str(self.directory), str(self.port)]
        command.append(str(self._starts))
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
            )
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    text = (self.directory / "log").read_text(errors="replace")
                    raise RuntimeError(f"the webhook server does not start: {text[-2000:]}") from None
                time.sleep(_POLL_S)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait(_LIMIT_S)
            self._process = None

    def pause(self) -> None:
        """Stop answering, but keep the connections open."""
        os.kill(self.pid, signal.SIGSTOP)
        process = psutil.Process(self.pid)
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(_POLL_S)

    def resume(self) -> None:
        """Continue after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def faults(
        self,
        script: Sequence[Mapping[str, Any]] = (),
        *,
        random: Sequence[Mapping[str, Any]] = (),
        seed: int = 0,
        refused_keys: Mapping[str, int] | None = None,
        slow_s: float = 0.0,
    ) -> None:
        """Set the faults of all requests from now on; without arguments there are none.

        *script* has one entry for each of the next requests; each entry of *random* applies to a `share` of the
        requests. An entry may have `status` with `text` and `headers`; `hang`; `slow_s`; `late_s`, which must be longer
        than the timeout, because such a request does not count as `in_flight`; `reset`, which breaks the connection in
        the middle of the answer, "before" or "after" the rows are accepted. Requests with a key in *refused_keys*, as
        JSON text, get its status.
        """
        rules = {
            "script": list(script),
            "random": list(random),
            "seed": seed,
            "refused_keys": refused_keys or {},
            "slow_s": slow_s,
        }
        new = self.directory / "faults.new"
        new.write_text(json.dumps(rules))
        new.replace(self.directory / "faults.json")

    @contextmanager
    def failing(self, *script: Mapping[str, Any], **rules: Any) -> Iterator[None]:
        """Set faults inside the block and remove them afterwards."""
        self.faults(script, **rules)
        try:
            yield
        finally:
            self.faults()

    def bodies(self, path: str) -> list[bytes]:
        """Return the bodies accepted at *path*, decompressed, in order."""
        return [body for _, body in self.accepted(path)]

    def accepted(self, path: str) -> list[tuple[str, bytes]]:
        """Return the content types and bodies accepted at *path*, decompressed, in order."""
        found = self._lines("journal", path)
        return [(accepted["content_type"], base64.b64decode(accepted["body"])) for accepted in found]

    def requests(self, path: str) -> list[dict[str, Any]]:
        """Return every request to *path* in order of arrival: headers, body, `in_flight`, `shared`, …"""
        return list(self._lines("requests", path))

    def _lines(self, name: str, path: str) -> list[dict[str, Any]]:
        """Return what the file says about *path*. Each line is read once, as many tests share the file."""
        with (self.directory / name).open("rb") as file:
            file.seek(self._ends[name])
            whole, newline, _ = file.read().rpartition(b"\n")
        self._ends[name] += len(whole + newline)
        for line in whole.split(b"\n"):
            if line.endswith(b"}"):
                found = json.loads(line)
                self._found[name, found["path"]].append(found)
        return self._found[name, path]


class WebhookReader(SinkReader):
    """Reads what *server* accepted at the path of the sink URI: one sequence, with one mark for all topics."""

    def __init__(self, context: SinkContext, server: WebhookServer) -> None:
        super().__init__(context)
        self._server = server

    def read(self) -> Iterator[StoredMessage]:
        for body in self._server.bodies(urlsplit(self.context.uri).path):
            for topic, _, value in messages_of(body):
                yield StoredMessage(topic=topic, value=value)

    def endpoints(self) -> Collection[Endpoint]:
        return [(None, None)]


@pytest.fixture(scope="session")
def webhook_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """An endpoint for the whole session. Tests use a `new_path`; a test that breaks the endpoint starts its own."""
    with WebhookServer(tmp_path_factory.mktemp("webhook")) as server:
        yield server
