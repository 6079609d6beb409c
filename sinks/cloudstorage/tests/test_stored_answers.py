"""A file counts as stored when the answer is the store's: a status of success may come from anything in between."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cdc_sink_cloudstorage import azure, s3
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.parts import PART_BYTES
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.temporary_names import TemporaryNames
from cdc_sink_cloudstorage.uris import open_store
from cdc_testing.object_stores import AZURE_KEY, SeaweedFS, uri_query

from cdc_core import ConfigError, TerminalSinkError, parse_options

_SMALL = [b"small"]
_LARGE = [b"x" * (2 * PART_BYTES)]
_PAGES = {
    "page": (200, "text/html", b"<html><head><title>Sign in</title></head><body>Sign in first</body></html>"),
    "created": (201, "text/html", b"<html><body>Created</body></html>"),
    "empty": (200, "text/html", b""),
    "nothing": (204, "text/plain", b""),
    "object": (200, "application/json", b"{}"),
    "null": (200, "application/json", b"null"),
}


def store_at(uri: str) -> Store:
    place, _, query = uri.partition("?")
    values = {name.lower(): value for name, value in parse_qsl(query)}
    options = parse_options(CloudStorageOptions, values, owner="sink 'cloudstorage'")
    return open_store(place, options, temporary_names=TemporaryNames(changefeed="feed", epoch=1))


@contextmanager
def served(page: str) -> Iterator[str]:
    """Yield the address of a server that answers every request with *page*."""
    status, kind, body = _PAGES[page]

    class Page(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("ETag", '"5f3a-61c0ffee"')
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD" and status != 204:
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(
    params=[
        *(("s3", page) for page in ("page", "created", "empty", "nothing")),  # botocore retries what is not XML
        *(("gs", page) for page in ("page", "object", "null")),
        *(("azure", page) for page in ("page", "created", "nothing")),
    ],
    ids="-".join,
)
def in_front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose endpoint answers every request with one page."""
    kind, name = request.param
    with served(name) as page:
        yield from opened(kind, page, monkeypatch)


def opened(kind: str, page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setitem(s3._CLIENT, "retries", {"mode": "standard", "max_attempts": 1})
    monkeypatch.setitem(azure._RETRY, "retry_total", 0)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", page)
    parameters = {
        "s3": {"AWS_ENDPOINT": page, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"},
        "gs": {"GCS_ENDPOINT": page},
        "azure": {"AZURE_ACCOUNT_NAME": "a", "AZURE_ACCOUNT_KEY": AZURE_KEY, "AZURE_ENDPOINT": f"{page}/a"},
    }[kind]
    auth = "implicit" if kind == "gs" else "specified"
    store = store_at(f"{kind}://bucket/out?" + uri_query({"AUTH": auth, **parameters}))
    yield store
    store.close()


def test_a_file_that_something_else_took_is_not_stored(in_front: Store) -> None:
    refuses(in_front, _SMALL)


@pytest.mark.parametrize(
    "in_front",
    [("s3", "page"), ("s3", "nothing"), ("azure", "page"), ("azure", "created")],
    ids="-".join,
    indirect=True,
)
def test_a_large_file_that_something_else_took_is_not_stored(in_front: Store) -> None:
    refuses(in_front, _LARGE)


def refuses(in_front: Store, chunks: list[bytes]) -> None:
    with pytest.raises(TerminalSinkError) as failed:
        in_front.stage("day/file", chunks).publish()
    assert failed.value.repairable
    assert str(failed.value).endswith(
        "/out/day/file: the response reports success, but the store does not have the data that was sent. Check that"
        " the endpoint belongs to the store, and that no proxy responds in its place"
    )


def test_a_check_notices_that_something_else_answers(in_front: Store) -> None:
    with pytest.raises(ConfigError):
        in_front.check()


class Counted:
    """The store *seaweedfs* in one directory, and the names of the requests that were sent to it."""

    def __init__(self, seaweedfs: SeaweedFS, change: Callable[[str, Callable[[], Any]], Any]) -> None:
        self.store: Any = store_at(seaweedfs.uri(f"answers/{secrets.token_hex(4)}"))
        self.requests: list[str] = []
        call = self.store.call

        def counting(method: str, **arguments: Any) -> Any:
            self.requests.append(method)
            return change(method, lambda: call(method, **arguments))

        self.store.call = counting


@pytest.mark.parametrize(("chunks", "requests"), [(_SMALL, ["put_object"]), (_LARGE, None)], ids=["small", "large"])
def test_no_request_is_made_for_an_answer_with_the_checksum(
    seaweedfs: SeaweedFS, chunks: list[bytes], requests: list[str] | None
) -> None:
    counted = Counted(seaweedfs, lambda _, send: send())
    counted.store.stage("file", chunks).publish()
    assert "head_object" not in counted.requests
    assert requests in (None, counted.requests)


@pytest.mark.parametrize("chunks", [_SMALL, _LARGE], ids=["small", "large"])
def test_another_checksum_is_one_more_request(seaweedfs: SeaweedFS, chunks: list[bytes]) -> None:
    def encrypted(method: str, send: Callable[[], Any]) -> Any:
        answer = send()
        if method in ("put_object", "complete_multipart_upload"):
            answer.pop("ChecksumCRC32", None)
            answer |= {"ETag": '"0123456789abcdef0123456789abcdef"', "Key": "x%2Ffile"}
        return answer

    counted = Counted(seaweedfs, encrypted)
    counted.store.stage("file", chunks).publish()
    assert counted.requests.count("head_object") == 1


@pytest.mark.parametrize("answer", [{}, {"ETag": '"5f3a-61c0ffee"'}, {"ChecksumCRC32": "AAAAAA=="}], ids=str)
@pytest.mark.parametrize("chunks", [_SMALL, _LARGE], ids=["small", "large"])
def test_a_file_that_the_store_does_not_have_is_not_stored(
    seaweedfs: SeaweedFS, chunks: list[bytes], answer: dict[str, str]
) -> None:
    def swallowed(method: str, send: Callable[[], Any]) -> Any:
        return dict(answer) if method in ("put_object", "complete_multipart_upload") else send()

    counted = Counted(seaweedfs, swallowed)
    with pytest.raises(TerminalSinkError, match="does not have the data that was sent"):
        counted.store.stage("file", chunks).publish()
