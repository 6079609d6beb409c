"""Connections that break, stay silent, or cannot be made."""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from cdc_sink_webhook.sink import WebhookSink
from cdc_testing.runs import eventually
from cdc_testing.webhook_rig import WebhookRig, flush, rows
from cdc_testing.webhook_server import WebhookServer

from cdc_core import RetryableSinkError, RowBatch


def delivered(server: WebhookServer, path: str) -> set[int]:
    return {message["key"][0] for body in server.bodies(path) for message in json.loads(body)["payload"]}


def write(sink: WebhookSink, *batches: RowBatch) -> None:
    for batch in batches:
        sink.emit(batch)
    sink.flush()


def test_the_first_broken_connection_does_not_count_as_a_retry(hook: WebhookRig) -> None:
    hook.server.faults([{"reset": "before"}, {"status": 500}])
    write(hook.sink(flush(retry={"Max": 1, "Backoff": "10ms"})), rows([1]))
    assert delivered(hook.server, hook.path) == {1}


@pytest.mark.parametrize("protocols", [["h2"], ["http/1.1"]])
def test_the_endpoint_may_close_connections_at_any_time(hook: WebhookRig, tmp_path: Any, protocols: list[str]) -> None:
    with WebhookServer(tmp_path, protocols=protocols, max_requests=60) as server:
        write(hook.sink(at=server), rows(range(400)))
        assert delivered(server, hook.path) == set(range(400))
        assert {request["http"] for request in server.requests(hook.path)} == {"2" if protocols == ["h2"] else "1.1"}


@pytest.mark.slow
@pytest.mark.parametrize(("protocols", "streams"), [(["h2"], 1), (["h2"], 100), (["http/1.1"], 1)])
def test_no_request_waits_for_another_one_on_its_connection(
    hook: WebhookRig, tmp_path: Any, protocols: list[str], streams: int
) -> None:
    count = streams + 20
    with WebhookServer(tmp_path, protocols=protocols, max_streams=streams) as server:
        server.faults(slow_s=5.0)  # long enough for a busy machine to send all of them
        options = {**flush(), "parallel_requests": str(count), "webhook_client_timeout": "60s"}
        write(hook.sink(options, at=server), rows(range(count)), rows(range(count, 2 * count)))
        requests = server.requests(hook.path)
        assert delivered(server, hook.path) == set(range(2 * count))
        assert len(requests) == 2 * count  # no retries
        assert max(request["in_flight"] for request in requests) == count
        connections = {request["connection"] for request in requests}
        assert len(connections) == -(-count // streams)


@pytest.fixture
def broken_tls_port(hook: WebhookRig) -> Iterator[int]:
    """The port of an endpoint that answers with garbage after the TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hook.server.certificates.server_cert, hook.server.certificates.server_key)

    def answer(connection: socket.socket) -> None:
        below = socket.socket(fileno=os.dup(connection.fileno()))
        with suppress(OSError), connection, below, context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)
            below.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            below.recv(1)

    def serve() -> None:
        with suppress(OSError):
            while True:
                answer(listening.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(400)


def test_a_tls_error_counts_as_a_broken_connection(hook: WebhookRig, broken_tls_port: int) -> None:
    with pytest.raises(
        RetryableSinkError, match="failed 4 times: the connection broke before the response was complete"
    ):
        write(hook.sink(uri=f"webhook-https://localhost:{broken_tls_port}/x"), rows([1]))


def test_a_silent_connection_is_not_used_again(hook: WebhookRig, proxy: Any) -> None:
    sink = hook.sink({"webhook_client_timeout": "2s"}, uri=f"webhook-https://localhost:{proxy.port}{hook.path}")
    write(sink, rows(range(20)))
    proxy.cut()
    write(sink, rows(range(20, 40)))
    assert delivered(hook.server, hook.path) == set(range(40))
    assert {request["http"] for request in hook.server.requests(hook.path)} == {"2"}


def test_a_long_answer_takes_no_room_of_later_answers(hook: WebhookRig) -> None:
    hook.server.faults(random=[{"share": 1, "text": "x" * (1 << 20)}])
    count = 20  # their answers have more bytes than a connection takes unread
    write(hook.sink({"webhook_client_timeout": "60s", "parallel_requests": 1}), rows(range(count)))
    assert len(hook.server.requests(hook.path)) == count


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["127.0.0.1"], "Connection refused"),
        (["127.0.0.1", "127.0.0.2"], "Connection refused"),
        (["224.0.0.1", "127.0.0.1"], "Network is unreachable; Connection refused"),
    ],
)
def test_the_reasons_why_the_endpoint_cannot_be_reached_are_shown(
    hook: WebhookRig, monkeypatch: pytest.MonkeyPatch, addresses: list[str], reason: str
) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 9)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(RetryableSinkError, match=rf"failed 4 times: cannot connect \({reason}\)$"):
        write(hook.sink(uri="webhook-https://hooks.example:9/x"), rows([1]))


@pytest.fixture
def nginx_port(hook: WebhookRig, tmp_path: Path) -> Iterator[int]:
    """The port of nginx in front of the endpoint. As by default, it takes bodies of 1 MB; of requests, 60."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    certificates = hook.server.certificates
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (tmp_path / "nginx.conf").write_text(f"""
        daemon off; master_process off; error_log {tmp_path}/error.log; pid {tmp_path}/pid; events {{}}
        http {{
            access_log off; {"".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)}
            server {{
                listen 127.0.0.1:{port} ssl http2;
                keepalive_requests 60;
                ssl_certificate {certificates.server_cert}; ssl_certificate_key {certificates.server_key};
                proxy_set_header X-Protocol $server_protocol;
                location / {{ proxy_pass https://127.0.0.1:{hook.server.port}; }}
            }}
        }}""")

    def listens() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    process = subprocess.Popen([program, "-p", tmp_path, "-c", tmp_path / "nginx.conf"], stderr=sys.stderr)
    try:
        eventually("nginx listens", listens)
        yield port
    finally:
        process.kill()
        process.wait()


def test_a_proxy_may_refuse_a_large_body_before_it_has_all_of_it(hook: WebhookRig, nginx_port: int) -> None:
    options = {**flush(Messages=4, retry={"Max": 10, "Backoff": "10ms"}), "webhook_client_timeout": "2s"}
    sink = hook.sink(options, uri=f"webhook-https://localhost:{nginx_port}{hook.path}")
    sink.emit(rows(range(4), notes=["x", "y" * 3_000_000, "x", "x"]))
    (refused,) = sink.flush().refused
    assert (refused.index, refused.reason[:4]) == (1, "413:")
    assert delivered(hook.server, hook.path) == {0, 2, 3}


@pytest.mark.parametrize("note", ["x", "x" * 70_000])
def test_no_request_is_sent_twice_because_the_endpoint_closes_a_connection_gracefully(
    hook: WebhookRig, nginx_port: int, note: str
) -> None:
    write(hook.sink(uri=f"webhook-https://localhost:{nginx_port}{hook.path}"), rows(range(200), notes=[note] * 200))
    requests = hook.server.requests(hook.path)
    assert delivered(hook.server, hook.path) == set(range(200))
    assert [request["headers"]["x-protocol"] for request in requests] == ["HTTP/2.0"] * 200


def test_connecting_does_not_count_against_the_timeout_of_a_request(hook: WebhookRig, proxy: Any) -> None:
    proxy.connect_s = 2.5
    hook.server.faults(slow_s=2.5)
    options = {**flush(), "webhook_client_timeout": "4s"}
    write(hook.sink(options, uri=f"webhook-https://localhost:{proxy.port}{hook.path}"), rows([1]))
    assert len(hook.server.requests(hook.path)) == 1


def test_a_connection_is_closed_when_its_tls_handshake_is_canceled(hook: WebhookRig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        options = {**flush(retry={"Max": 2, "Backoff": "10ms"}), "webhook_client_timeout": "100ms"}
        sink = hook.sink(options, uri=f"webhook-https://127.0.0.1:{port}/x")
        gc.disable()  # the garbage collector would close them eventually
        try:
            with pytest.raises(RetryableSinkError, match="cannot connect within"):
                write(sink, rows([1]))
            assert not [
                each for each in psutil.Process().net_connections("tcp") if each.raddr and each.raddr.port == port
            ]
        finally:
            gc.enable()
