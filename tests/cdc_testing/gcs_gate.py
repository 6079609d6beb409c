"""Authentication for fake-gcs-server, which has none: tokens for signatures, as Google's token server issues them."""

from __future__ import annotations

import http.client
import json
import secrets
import threading
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from cdc_testing.object_stores import BUCKET, FakeGcs, uri_query
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import exceptions, jwt

_ACCOUNT = "changefeeds@cdc-test.iam.gserviceaccount.com"
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class GcsGate:
    """Passes requests on to *store* if they have a token that `/token` issued for a signature of the account's key.

    While `revoked` is true it issues no tokens and accepts none. It denies the HTTP methods in `forbidden`.
    """

    def __init__(self, store: FakeGcs) -> None:
        self.store = store
        self.revoked = False
        self.forbidden: frozenset[str] = frozenset()
        self.tokens: set[str] = set()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.gate = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @cached_property
    def private_key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def credentials(self, *, key: rsa.RSAPrivateKey | None = None) -> str:
        """Return the key file of the service account as JSON. *key* replaces its private key, to make it wrong."""
        pem = (key or self.private_key).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return json.dumps(
            {
                "type": "service_account",
                "project_id": "cdc-test",
                "private_key_id": "1",
                "private_key": pem.decode(),
                "client_email": _ACCOUNT,
                "client_id": "1",
                "token_uri": f"{self.endpoint}/token",
            }
        )

    def uri(self, path: str = "", *, bucket: str = BUCKET, **parameters: str) -> str:
        """Return the sink's URI of *path*, with the account's credentials by default."""
        given = {"AUTH": "specified", "CREDENTIALS": self.credentials(), "GCS_ENDPOINT": self.endpoint, **parameters}
        return f"gs://{bucket}/{path}?" + uri_query(given)

    def token_for(self, assertion: str) -> str | None:
        """Return a new token, or None when *assertion* is not signed with the account's key."""
        public = self.private_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        try:
            claims = jwt.decode(assertion, certs={"1": public})
        except (ValueError, exceptions.GoogleAuthError):
            return None
        if self.revoked or claims["iss"] != _ACCOUNT:
            return None
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return token


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    gate: GcsGate


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        """Log nothing."""

    def do_request(self) -> None:
        gate = self.server.gate
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/token":
            token = gate.token_for(parse_qs(body.decode())["assertion"][0])
            if token is None:
                self._respond(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
            else:
                self._respond(200, {"access_token": token, "expires_in": 3600, "token_type": "Bearer"})
            return
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or token not in gate.tokens or gate.revoked:
            self._respond(401, {"error": {"code": 401, "message": "Invalid Credentials"}})
        elif "/iam/testPermissions" in self.path and "GET" not in gate.forbidden:
            requested = parse_qs(urlsplit(self.path).query)["permissions"]
            denied = {name for name in requested if name.endswith(".create") and "POST" in gate.forbidden}
            self._respond(200, {"permissions": sorted(set(requested) - denied)})
        elif self.command in gate.forbidden:
            message = f"{_ACCOUNT} does not have storage.objects access to the Google Cloud Storage object."
            self._respond(403, {"error": {"code": 403, "message": message}})
        else:
            self._pass_on(body)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_request  # noqa: N815 (the base's names)

    def _pass_on(self, body: bytes) -> None:
        upstream = http.client.HTTPConnection(urlsplit(self.server.gate.store.endpoint).netloc)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        try:
            upstream.request(self.command, self.path, body=body, headers=headers)
            response = upstream.getresponse()
            response_body = response.read()
        except (OSError, http.client.HTTPException):  # the store is down, so the gate is too
            self.close_connection = True
            return
        finally:
            upstream.close()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(response_body)))
        self.end_headers()
        self.wfile.write(response_body)

    def _respond(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
