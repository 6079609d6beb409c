"""Wrong and hostile requests over real connections: each is refused, and the server goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.runs import eventually
from cdc_testing.web_rig import SECRET, TOKENS, Reply, Web, read_reply, serving
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from cdc_core.web.connection import Connections
from cdc_core.web.endpoint import Endpoint, Role

MAX_BODY = 4096
SLOW_S = 0.4
VIEW, OPERATE, ADMIN = TOKENS.values()
OF_PAGES = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


LIMITS: dict[str, Any] = {"max_body": MAX_BODY, "max_rate": 1000.0, "max_connections": 40}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("web"), request_timeout=600.0, **LIMITS) as found:
        yield found
        assert found.ask(token=VIEW).status == 200


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server that waits for a request no longer than `SLOW_S`."""
    with serving(tmp_path_factory.mktemp("hasty"), request_timeout=SLOW_S, **LIMITS) as found:
        yield found


def refused(reply: Reply, status: int, why: str) -> None:
    """Check an answer: the status, the reason, the headers that every answer has, and that it tells no secret."""
    assert (reply.status, why in reply.message) == (status, True), reply
    assert reply.headers.items() >= OF_PAGES.items()
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert "server" not in reply.headers
    assert not [name for name in reply.headers if name.startswith("access-control-")]
    for secret in (*TOKENS.values(), SECRET):
        assert secret.encode() not in reply.body


# Who asks


def test_without_a_token(web: Web) -> None:
    reply = web.ask()
    refused(reply, 401, "a token is missing; send Authorization: Bearer TOKEN")
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "given",
    [
        "Bearer nonsense",
        "Bearer",
        "Bearer token-view-",
        "Basic dXNlcjpwYXNz",
        "token-view",
        "Bearer \xff\xfe",
        "bearer  ",
    ],
)
def test_with_a_wrong_token(web: Web, given: str) -> None:
    refused(web.ask(headers=[("Authorization", given)]), 401, "unknown token or certificate")


def test_with_a_token_in_the_query_where_logs_would_keep_it(web: Web) -> None:
    refused(web.ask(f"/view?token={VIEW}&access_token={VIEW}"), 401, "a token is missing")


def test_with_the_hash_from_the_file_as_a_token(web: Web) -> None:
    assert web.access.settings.tokens is not None
    line = next(line for line in Path(web.access.settings.tokens).read_text().splitlines() if "boss" in line)
    for token in (line.split()[2], line.split(":")[1]):
        refused(web.ask(token=token), 401, "unknown token or certificate")


def test_with_a_role_that_is_too_small(web: Web) -> None:
    refused(web.ask("/operate", method="POST", token=VIEW, body=b"{}"), 403, "'viewer' has the role view, but this")
    refused(web.ask("/admin", method="DELETE", token=OPERATE), 403, "this request requires the role admin")
    assert web.ask("/admin", method="DELETE", token=ADMIN).status == 200


# The size and the time of a request


def test_a_declared_body_that_is_huge_is_not_waited_for(web: Web) -> None:
    head = [("Content-Length", str(10**12))]
    reply = web.ask("/operate", method="POST", token=OPERATE, headers=head, body=b"x" * (MAX_BODY + 1))
    refused(reply, 413, "larger than 4096 bytes")
    assert reply.headers["connection"] == "close"


def test_a_chunked_body_that_is_huge_is_cut_off(web: Web) -> None:
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    reply = web.ask(
        "/operate", method="POST", token=OPERATE, headers=[("Transfer-Encoding", "chunked")], body=chunk * 5
    )
    refused(reply, 413, "larger than 4096 bytes")
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize(
    "head",
    ["Content-Length: 4000\r\nExpect: 100-continue", "Transfer-Encoding: chunked"],
    ids=["asks before it sends", "chunked"],
)
def test_a_body_is_not_read_before_its_sender_is_known(tmp_path: Path, head: str) -> None:
    with serving(tmp_path, request_timeout=600.0, **LIMITS) as web, web.connect() as connection:  # a client waits 30 s
        connection.sendall(f"POST /operate HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\n{head}\r\n\r\n".encode())
        reply = read_reply(connection)
        refused(reply, 401, "a token is missing")
        assert connection.recv(1) == b""


def test_a_head_that_is_huge(web: Web) -> None:
    refused(web.ask(headers=[("X-Long", "x" * 33_000)], token=VIEW), 431, "larger than 32768 bytes")
    refused(web.ask(f"/view?{'x' * 33_000}", token=VIEW), 431, "larger than 32768 bytes")
    with (
        web.connect() as connection,
        trickling(connection, b"GET /view HTTP/1.1\r\n", b"X: " + b"x" * 32_000 + b"\r\n"),
    ):
        assert read_reply(connection).status == 400
        assert_closed(connection)


def test_a_head_that_comes_slowly(hasty: Web) -> None:
    with (
        hasty.connect() as connection,
        trickling(connection, b"GET /view HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X: y\r\n"),
    ):
        assert read_reply(connection).status == 408  # otherwise the client would give up after 30 s
        assert_closed(connection)


def test_a_connection_that_never_says_anything(hasty: Web) -> None:
    with hasty.connect() as connection:
        assert read_reply(connection).status == 408
        assert connection.recv(1) == b""


def test_a_second_head_that_comes_slowly(hasty: Web) -> None:
    with hasty.connect() as connection:
        request = f"GET /view HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\nAuthorization: Bearer {VIEW}\r\n\r\n".encode()
        connection.sendall(request)
        assert read_reply(connection).status == 200
        connection.sendall(request[:-3])
        assert read_reply(connection).status == 408
        assert connection.recv(1) == b""


def test_a_second_head_that_comes_slowly_while_the_handler_has_work_left(tmp_path: Path) -> None:
    goes_on = threading.Event()

    def handle(_request: Request) -> Response:
        return Response(b"x", background=BackgroundTask(goes_on.wait))

    endpoint = Endpoint(method="GET", path="/view", role=Role.ANYONE, handle=handle)
    with serving(tmp_path, endpoints=[endpoint], request_timeout=SLOW_S, **LIMITS) as web, web.connect() as connection:
        connection.sendall(b"GET /view HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_reply(connection).status == 200
        connection.sendall(b"G")
        try:
            assert read_reply(connection).status == 408
            assert connection.recv(1) == b""
        finally:
            goes_on.set()


def test_a_body_that_comes_slowly(hasty: Web) -> None:
    head = (
        f"POST /operate HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\nAuthorization: Bearer {OPERATE}\r\n"
        "Content-Length: 4000\r\n\r\n"
    ).encode()
    with hasty.connect() as connection, trickling(connection, head, b"x"):
        reply = read_reply(connection)
        refused(reply, 408, "the body of the request took longer than 0.4 s")
        assert_closed(connection)


def test_an_answer_that_is_not_read(hasty: Web) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", hasty.port))
        connection.sendall(f"GET /large HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {VIEW}\r\n\r\n".encode())
        connection.recv(1, socket.MSG_PEEK)  # the answer has begun
        eventually_empty(hasty)
        read = 0
        with contextlib.suppress(ConnectionResetError):
            while found := connection.recv(1 << 20):
                read += len(found)
        assert read < 64 * 1024 * 1024


def test_more_connections_than_there_may_be(web: Web) -> None:
    """One address gets half of them, so that it cannot keep out all others."""
    held = [web.connect() for _ in range(20)]
    try:
        reply = web.ask(token=VIEW)
        assert (reply.status, reply.body, reply.headers["retry-after"]) == (503, b"too many connections\n", "1")
        with web.connect(source="127.0.0.2") as other:
            other.sendall(f"GET /view HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {VIEW}\r\n\r\n".encode())
            assert read_reply(other).status == 200
    finally:
        for connection in held:
            connection.close()
    eventually_empty(web)
    assert web.ask(token=VIEW).status == 200


# Where a request comes from


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:80", "127.0.0.1.example", "169.254.169.254", "", "@"]
)
def test_for_another_name(web: Web, host: str) -> None:
    refused(web.ask(headers=[("Host", host)], token=ADMIN), 421, "this server does not answer to the name")


@pytest.mark.parametrize(
    "header",
    [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:1"),
        ("Origin", "http://127.0.0.1.evil.example"),
        ("Origin", "https://127.0.0.1"),
        ("Origin", "http://[::1"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ],
)
def test_from_a_page_of_another_site(web: Web, header: tuple[str, str]) -> None:
    for proof in (("Authorization", f"Bearer {ADMIN}"), ("Cookie", f"cdc_token={ADMIN}")):
        reply = web.ask("/admin", method="DELETE", headers=[proof, header])
        refused(reply, 403, "cross-site request refused")


def test_by_a_cookie_without_the_page_it_comes_from(web: Web) -> None:
    cookie = ("Cookie", f"other=1; cdc_token={ADMIN}")
    refused(web.ask("/admin", method="DELETE", headers=[cookie]), 403, "cross-site request refused")
    own = ("Origin", f"http://127.0.0.1:{web.port}")
    assert web.ask("/admin", method="DELETE", headers=[cookie, own]).status == 200
    assert web.ask(headers=[cookie]).status == 200


def test_cookies_of_other_applications_do_not_hide_the_token(web: Web) -> None:
    cookie = ("Cookie", f'a[0]={{"x": 1}}; b@c=d e; cdc_token={VIEW}; last="')
    assert web.ask(headers=[cookie]).status == 200


def test_a_page_of_another_site_may_not_read_answers_either(web: Web) -> None:
    asked = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "DELETE")]
    reply = web.ask("/admin", method="OPTIONS", headers=asked, token=ADMIN)
    refused(reply, 405, "Method Not Allowed")


# What two programs could read differently


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: -5\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X: a\r\n b: c\r\n\x00: y\r\n",
        "X: a\x00b\r\n",
        "Host: other\r\n",
    ],
)
def test_framing_that_smuggles_a_request(web: Web, head: str) -> None:
    head = f"POST /operate HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {OPERATE}\r\n{head}\r\n"
    with web.connect() as connection:
        connection.sendall(head.encode("latin-1") + b"0\r\n\r\nDELETE /admin HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        reply = read_reply(connection)
        assert reply.status in (400, 501)
        assert_closed(connection)


@pytest.mark.parametrize("request_line", ["GET /view", "\x16\x03\x01", "GET /a b HTTP/1.1"])
def test_what_is_not_http(web: Web, request_line: str) -> None:
    assert web.send(f"{request_line}\r\nHost: 127.0.0.1\r\n\r\n".encode("latin-1")).status == 400


def test_another_version_of_http(web: Web) -> None:
    for line in ("GET /view HTTP/9.9", "PRI * HTTP/2.0"):
        reply = web.send(f"{line}\r\nHost: 127.0.0.1\r\n\r\n".encode())
        refused(reply, 505, "this server speaks HTTP/1.1")


def test_two_tokens(web: Web) -> None:
    two = [("Authorization", f"Bearer {ADMIN}"), ("Authorization", f"Bearer {VIEW}")]
    refused(web.ask(headers=two), 400, "the header authorization appears more than once")


# The path


@pytest.mark.parametrize(
    "path",
    [
        "/view/../admin",
        "/view/..%2fadmin",
        "/view/%2e%2e/admin",
        "/../../etc/passwd",
        "/ui/static/..%2f..%2f..%2fetc/passwd",
        "/./view",
    ],
)
def test_a_path_that_leads_upwards(web: Web, path: str) -> None:
    refused(web.ask(path, token=ADMIN), 400, "leads upwards")


@pytest.mark.parametrize("path", ["/view/%00", "/view/a%0d%0aSet-Cookie:%20x=y", "/view/%1b[31m", "/view/%7f"])
def test_a_path_with_control_characters(web: Web, path: str) -> None:
    reply = web.ask(path, token=ADMIN)
    refused(reply, 400, "the path has a control character")
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("path", ["/view/%ff", "/view/%c3%28", "/view/%ed%a0%80"])
def test_a_path_that_is_not_utf8(web: Web, path: str) -> None:
    refused(web.ask(path, token=ADMIN), 400, "the path is not UTF-8")


@pytest.mark.parametrize("scheme", ["http", "HTTP", "https"])
def test_a_target_as_proxies_get_it_names_the_host_in_place_of_the_header(web: Web, scheme: str) -> None:
    own, elsewhere = f"{scheme}://127.0.0.1:{web.port}", ("Host", "evil.example")
    for target in (f"{own}/view?x=1", f"{scheme}://localhost/view", f"{own}/view/http:"):
        assert web.ask(target, token=VIEW, headers=[elsewhere]).status == 200
    from_own_page = [elsewhere, ("Origin", f"http://127.0.0.1:{web.port}")]
    assert web.ask(f"{own}/admin", method="DELETE", token=ADMIN, headers=from_own_page).status == 200
    assert web.ask(own, token=VIEW).status == 404
    for host in ("evil.example", f"x@127.0.0.1:{web.port}", "", f"evil.example?@127.0.0.1:{web.port}"):
        refused(web.ask(f"{scheme}://{host}/view", token=VIEW), 421, "this server does not answer to the name")
    refused(web.ask(f"{own}/view/../admin", token=VIEW), 400, "leads upwards")
    refused(web.ask(f"{own}/view", method="DELETE"), 405, "Method Not Allowed")
    refused(web.ask(f"{own}/view"), 401, "a token is missing")


@pytest.mark.parametrize(
    "target", ["*", "view", "ftp://127.0.0.1/view", "127.0.0.1:80", "http:/view", "?x", "://x/view"]
)
def test_a_target_that_is_no_path(web: Web, target: str) -> None:
    refused(web.ask(target, token=ADMIN), 400, "the path is not absolute")


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PUT", "BREW"])
def test_a_method_that_is_not_there(web: Web, method: str) -> None:
    assert web.ask(method=method, token=ADMIN).status in (400, 405)


# What is told


def test_an_error_with_a_secret_is_told_nobody(web: Web) -> None:
    refused(web.ask("/broken", token=VIEW), 500, "the server could not answer this request; its log says why")


def test_the_log_says_who_changed_what_and_no_token(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    web.ask("/operate?x=%0aforged", method="POST", token=OPERATE, body=b"{}")
    web.ask("/admin", method="DELETE", token="gue55ed-token")
    web.ask("/a%0aforged", method="DELETE")
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "POST /operate by operator: status 200" in text
    assert "DELETE /admin by an unknown caller: status 401" in text
    assert "DELETE /a%0aforged by an unknown caller: status 400" in text
    for secret in (*TOKENS.values(), "gue55ed"):
        assert secret not in text


CHUNKS = (
    b"zz\r\n",
    b"-1\r\n",
    b"5\r\nhelloXX",
    b"5\r\nhello\r\n0\r\nnothing\r\n\r\n",
    b"F" * 40 + b"\r\n",
    b"0x5\r\nhello\r\n",
    b"5 \r\nhello\r\n\x00\r\n",
    b"\xff\xfe",
    b"0\r\n\r\nGET\r\n\r\n",
    b"",
)
"""Bodies in chunks that are none, or after which something else follows, or the connection ends."""


def test_malformed_requests_leave_no_traceback_and_no_flood_in_the_log(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lines = [f"{method} {path}" for method, path in (("POST", "/operate"), ("POST", "/nothing"), ("GET", "/large"))]
    heads = [f"{line} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n" for line in lines]
    sent = 0
    for head in heads:
        for proof in (f"Authorization: Bearer {OPERATE}\r\n", ""):
            for chunk in CHUNKS:
                with web.connect() as connection:
                    connection.sendall(f"{head}{proof}\r\n".encode() + chunk)
                    connection.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionResetError):
                        assert connection.recv(12) in (
                            b"",
                            b"HTTP/1.1 200",
                            b"HTTP/1.1 400",
                            b"HTTP/1.1 401",
                            b"HTTP/1.1 404",
                        )
                sent += 1
    eventually_empty(web)
    assert web.ask(token=VIEW).status == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info] == []
    assert len(caplog.records) <= sent


def test_files_that_cannot_be_opened_any_more_are_named_with_their_limit(
    web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.settimeout(30)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            client.connect(("127.0.0.1", web.port))
            eventually("the warning", lambda: "could be accepted" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        client.sendall(f"GET /view HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {VIEW}\r\n\r\n".encode())
        assert read_reply(client).status == 200
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == (
        "no connection could be accepted: [Errno 24] Too many open files; this process may open"
        f" {free} files: raise the limit, for example with `ulimit -n 4096`"
    )


@pytest.mark.parametrize("number", [errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_host_without_files_or_memory_for_connections_does_not_flood_the_log(
    web: Web, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    connections = Connections(web.access)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        for _ in range(3):
            connections.log_error(loop, {"exception": OSError(number, os.strerror(number))})
    assert [record.getMessage() for record in caplog.records] == [
        f"no connection could be accepted: [Errno {number}] {os.strerror(number)}"
    ]


def test_connections_leave_files_for_what_answers_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cdc_core.web.connection.open_files_limit", lambda: 16)
    with serving(tmp_path, **LIMITS) as web:
        assert "accepts 8 connections at a time, not 40, because this process may open 16 files; raise" in (caplog.text)
        held = [web.connect() for _ in range(4)]
        assert web.ask(token=VIEW).status == 503
        for connection in held:
            connection.close()


# Helpers


@contextlib.contextmanager
def trickling(connection: socket.socket, first: bytes, rest: bytes) -> Iterator[None]:
    """Send *first*, and then *rest* every tenth of the time that is allowed, until the block ends."""
    ended = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            connection.sendall(first)
            while not ended.wait(SLOW_S / 10):
                connection.sendall(rest)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def assert_closed(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        assert connection.recv(1) == b""


def eventually_empty(web: Web) -> None:
    """Return when the server has noticed that all connections have ended, or that they are stuck."""
    eventually("the end of the connections", lambda: not web.server.connections)
