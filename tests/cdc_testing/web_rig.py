"""A real server on loopback, and a client that sends exactly the bytes that a test says."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cdc_core.options import parse_options
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.web.access.access import Access
from cdc_core.web.access.callers import token_hash
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Endpoint, Role
from cdc_core.web.requests import Deployment
from cdc_core.web.server import WebServer, application

LOOPBACK = Address("127.0.0.1", 0)
SECRET = "S3cret-of-the-store"
TOKENS = {"viewer": "token-view", "operator": "token-operate", "boss": "token-admin"}
ROLES = {"viewer": "view", "operator": "operate", "boss": "admin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server answered. Headers by their names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> str:
        """What the body of an error says; the body has the form that all errors have."""
        found = json.loads(self.body)
        assert found["error_code"] == self.status
        assert set(found) == {"error_code", "message"}
        return str(found["message"])


class Web:
    """A server that runs, and its clients."""

    def __init__(self, server: WebServer, access: Access) -> None:
        self.server, self.access = server, access
        self.port = server.address.port

    def connect(self, tls: ssl.SSLContext | None = None, *, source: str = "127.0.0.1") -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0))
        return plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def send(self, data: bytes, *, tls: ssl.SSLContext | None = None) -> Reply:
        """Return what the server answers to exactly *data*."""
        with self.connect(tls) as connection:
            connection.sendall(data)
            return read_reply(connection, method=data.partition(b" ")[0].decode("latin-1"))

    def ask(
        self,
        target: str = "/view",
        *,
        method: str = "GET",
        token: str | None = None,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        tls: ssl.SSLContext | None = None,
    ) -> Reply:
        """Return what the server answers to a well-formed request; *headers* replace those that it would have."""
        given = {name.lower() for name, _ in headers}
        lines = [f"{method} {target} HTTP/1.1"]
        if "host" not in given:
            lines.append(f"Host: 127.0.0.1:{self.port}")
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None and not {"content-length", "transfer-encoding"} & given:
            lines.append(f"Content-Length: {len(body)}")
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""), tls=tls)


def read_reply(connection: socket.socket, *, method: str = "GET") -> Reply:
    answer = http.client.HTTPResponse(connection, method=method)
    answer.begin()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(status=answer.status, headers=headers, body=answer.read())


def plain_endpoints() -> list[Endpoint]:
    """Return one endpoint for each role, one that fails with a secret, and one whose answer is large."""

    def who(request: Request) -> Response:
        state = request.state
        return JSONResponse({"user": state.user, "role": state.role.name, "secure": state.secure})

    def change(request: Request) -> Response:
        return JSONResponse({"changed": len(request.state.body)})

    def broken(_request: Request) -> Response:
        raise ValueError(f"cannot connect to postgresql://cdc:{SECRET}@db/shop")

    def large(_request: Request) -> Response:
        return Response(b"x" * 64 * 1024 * 1024)

    found = [
        ("GET", "/open", Role.ANYONE, who),
        ("GET", "/view", Role.VIEW, who),
        ("GET", "/view/{name}", Role.VIEW, lambda request: JSONResponse(request.path_params["name"])),
        ("POST", "/operate", Role.OPERATE, change),
        ("DELETE", "/admin", Role.ADMIN, change),
        ("GET", "/broken", Role.VIEW, broken),
        ("GET", "/large", Role.VIEW, large),
    ]
    return [Endpoint(method=method, path=path, role=role, handle=handle) for method, path, role, handle in found]


def write_tokens(path: Path, *more: str) -> Path:
    """Write the file with `TOKENS`, and *more* lines."""
    lines = [f"{name} {ROLES[name]} {token_hash(token)}" for name, token in TOKENS.items()]
    path.write_text("\n".join(["# who may ask", "", *lines, *more, ""]))
    return path


@contextmanager
def serving(
    directory: Path,
    *,
    tokens: bool = True,
    endpoints: Sequence[Endpoint] | None = None,
    address: Address = LOOPBACK,
    plugins: PluginHost | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[Web]:
    """Serve *endpoints*, those of `plain_endpoints` if None, over a store in *directory*, which has no job."""
    if tokens:
        options["tokens"] = str(write_tokens(directory / "tokens"))
    access = Access(address, parse_options(AccessSettings, options, owner="the server"))
    with closing(ProgressStore(store_url(directory))) as store:
        store.open()
        deployment = Deployment(store, plugins or PluginHost.load(), environ=environ or {}, keep_secret=lambda _: None)
        deployment.add_secrets([SECRET])
        app = application(plain_endpoints() if endpoints is None else endpoints, deployment, access)
        with WebServer(app, access) as server:
            yield Web(server, access)
