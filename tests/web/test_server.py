"""A server that runs in a thread: where it listens, and how it ends."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from pathlib import Path

import pytest
from cdc_testing.web_rig import LOOPBACK, Web, serving
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from cdc_core.errors import ConfigError
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Sample
from cdc_core.web.access.access import Access
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Endpoint, Role
from cdc_core.web.endpoints import metrics_endpoint
from cdc_core.web.server import WebServer


def test_nothing_is_answered_once_it_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, tokens=False) as web:
        kept = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
        for _ in range(2):  # on one connection
            kept.request("GET", "/view")
            assert kept.getresponse().read()
        assert web.server.url == f"http://127.0.0.1:{web.port}"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", web.port), timeout=30)
    assert kept.sock.recv(1) == b""
    kept.close()
    assert not web.server._thread.is_alive()


def test_answers_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    with serving(tmp_path, tokens=False) as web, web.connect() as connection:
        connection.sendall(b"GET /view HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1)
        [kept] = web.server._server.server_state.connections
        assert kept.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_answer_that_has_begun_is_finished_before_it_closes(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(_request: Request) -> Response:
        begun.set()
        assert goes_on.wait(400)
        return JSONResponse("done")

    endpoint = Endpoint(method="GET", path="/slow", role=Role.VIEW, handle=slow)
    answers = []
    with serving(tmp_path, tokens=False, endpoints=[endpoint]) as web:
        asking = threading.Thread(target=lambda: answers.append(web.ask("/slow").body))
        asking.start()
        assert begun.wait(400)
        closing = threading.Thread(target=web.server.close)
        closing.start()
        goes_on.set()
        closing.join()
        asking.join()
    assert answers == [b'"done"']


def test_a_stream_without_end_does_not_keep_it_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.web.server._LAST_ANSWERS_S", 0.2)

    async def events() -> object:
        while True:
            yield b"data: x\n\n"
            await asyncio.sleep(0.01)

    def stream(_request: Request) -> Response:
        return StreamingResponse(events(), media_type="text/event-stream")  # type: ignore[arg-type]

    endpoint = Endpoint(method="GET", path="/events", role=Role.VIEW, handle=stream)
    with serving(tmp_path, tokens=False, endpoints=[endpoint]) as web, web.connect() as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(10_000)
        web.server.close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", web.port), timeout=30)


def test_a_handler_that_hangs_does_not_keep_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cdc_core.web.server._LEFT_AFTER_S", 0.5)
    begun, goes_on = threading.Event(), threading.Event()

    def hang(_request: Request) -> Response:
        begun.set()
        goes_on.wait()
        return Response()

    endpoint = Endpoint(method="GET", path="/hang", role=Role.VIEW, handle=hang)
    with serving(tmp_path, tokens=False, endpoints=[endpoint]) as web, web.connect() as connection:
        connection.sendall(b"GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(400)
        web.server.close()
        assert "while a request was still running" in caplog.text
        goes_on.set()


def test_a_port_that_is_taken_is_named(taken: str) -> None:
    from starlette.applications import Starlette

    with pytest.raises(ConfigError) as raised:
        WebServer(Starlette(), Access(Address.parse(taken, option="--listen"), AccessSettings()))
    assert str(raised.value) == (
        f"--listen {taken}: this process cannot listen there: Address already in use; choose another address with"
        " --listen=HOST:PORT"
    )


def test_it_listens_at_ipv6_too(tmp_path: Path) -> None:
    with serving(tmp_path, tokens=False, address=Address("::1", 0)) as web:
        kept = http.client.HTTPConnection("::1", web.port, timeout=30)
        kept.request("GET", "/view")
        assert kept.getresponse().status == 200
        kept.close()


def test_metrics_are_answered_in_the_format_that_is_asked_for(tmp_path: Path) -> None:
    endpoint = metrics_endpoint(lambda: [Sample(metrics.STORE_UP, 1.0)])
    with serving(tmp_path, endpoints=[endpoint]) as web:
        assert web.ask("/metrics").status == 401
        plain = ask_metrics(web, "text/plain")
        [family] = text_string_to_metric_families(plain[1])
        assert [(sample.name, sample.value) for sample in family.samples] == [("cdc_store_up", 1.0)]
        open_metrics = ask_metrics(web, "application/openmetrics-text; version=1.0.0")
        assert open_metrics[0].startswith("application/openmetrics-text")
        assert open_metrics[1].endswith("# EOF\n")


def ask_metrics(web: Web, accept: str) -> tuple[str, str]:
    reply = web.ask("/metrics", token="token-view", headers=[("Accept", accept)])
    assert reply.status == 200
    return reply.headers["content-type"], reply.body.decode()


def test_a_free_port_is_taken_if_none_is_named(tmp_path: Path) -> None:
    assert LOOPBACK.port == 0
    with serving(tmp_path) as one, serving(tmp_path) as other:
        assert 0 not in (one.port, other.port)
        assert one.port != other.port


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9464", "127.0.0.1", 9464), ("[::1]:0", "::1", 0), ("db-1.lan:80", "db-1.lan", 80)],
)
def test_an_address_is_written_as_it_is_read(text: str, host: str, port: int) -> None:
    address = Address.parse(text, option="--metrics")
    assert (address.host, address.port, str(address)) == (host, port, text)


@pytest.mark.parametrize("text", ["shop.toml", "9464", ":9464", "host:", "host:http", "::1:9464", "host:99999", "[]:1"])
def test_what_is_no_address_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not HOST:PORT, such as 127.0.0.1:9464; write --metrics=HOST:PORT"):
        Address.parse(text, option="--metrics")


@pytest.mark.parametrize(
    ("bound", "header", "served"),
    [
        ("127.0.0.1:9464", "127.0.0.1:9464", True),
        ("127.0.0.1:9464", "localhost:9464", True),
        ("127.0.0.1:9464", "LOCALHOST", True),
        ("127.0.0.1:9464", "[::1]:9464", True),
        ("127.0.0.1:9464", "rebound.example:9464", False),
        ("127.0.0.1:9464", "127.0.0.1.example", False),
        ("127.0.0.1:9464", "localhost.example:9464", False),
        ("127.0.0.1:9464", "", False),
        ("10.0.0.5:9464", "10.0.0.5:9464", True),
        ("10.0.0.5:9464", "localhost:9464", False),
        ("node-a.lan:9464", "node-a.lan:9464", True),
        ("[fd00::5]:9464", "[fd00::5]:9464", True),
        ("[fd00::5]:9464", "[fd00::5]", True),
        ("[fd00::5]:9464", "[fd00::6]:9464", False),
        ("0.0.0.0:9464", "anything.example", True),
        ("[::]:9464", "anything.example", True),
    ],
)
def test_only_the_names_it_listens_at_are_answered(bound: str, header: str, served: bool) -> None:
    assert Address.parse(bound, option="--metrics").answers_to(header) is served
