"""Who may connect to a server, by which name, how often, and with which certificate."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_sink_kafka.demo.certificates import Certificates, make_certificates
from cdc_testing.clock import Clock
from cdc_testing.runs import eventually
from cdc_testing.web_rig import LOOPBACK, TOKENS, Web, serving, write_tokens

from cdc_core.errors import ConfigError, OptionError
from cdc_core.options import parse_options
from cdc_core.web.access.access import Access, RateLimit
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.access.tls import subject_of
from cdc_core.web.address import Address
from cdc_core.web.server import TrustedProxies

VIEW, OPERATE, ADMIN = TOKENS.values()
EVERYWHERE = Address("0.0.0.0", 0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_options(certificates: Certificates) -> dict[str, Any]:
    return {"tls_cert": str(certificates.server_cert), "tls_key": str(certificates.server_key)}


def access(address: str, **options: Any) -> Access:
    return Access(Address.parse(address, option="--listen"), parse_options(AccessSettings, options, owner="the server"))


# Where it may listen


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "cdc.example:1", "[fe80::1]:1"])
def test_others_are_let_in_only_with_tokens_and_tls(address: str, tmp_path: Path, certificates: Certificates) -> None:
    tokens = {"tokens": str(write_tokens(tmp_path / "tokens"))}
    with pytest.raises(ConfigError, match="without authentication; add --tokens FILE with tokens that"):
        access(address)
    with pytest.raises(ConfigError, match="without authentication"):
        access(address, trusted_network=True, **tls_options(certificates))
    with pytest.raises(ConfigError, match="tokens would travel unencrypted; add --tls-cert FILE and --tls-key FILE"):
        access(address, **tokens)
    access(address, **tokens, **tls_options(certificates))
    access(address, **tokens, trusted_network=True)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.0.0.9:1"])
def test_processes_of_the_same_host_need_neither(address: str) -> None:
    access(address)


def test_without_tokens_everybody_on_the_host_may_do_everything(tmp_path: Path) -> None:
    with serving(tmp_path, tokens=False) as web:
        assert json.loads(web.ask().body) == {"user": "local", "role": "ADMIN", "secure": False}
        assert web.ask("/admin", method="DELETE").status == 200
        from_elsewhere = [("Origin", "https://evil.example")]
        assert web.ask("/admin", method="DELETE", headers=from_elsewhere).status == 403
        assert web.ask(headers=[("Host", "rebound.example")]).status == 421


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tls_cert": "a"}, "'tls_cert' and 'tls_key' must be set together; set both"),
        ({"tls_client_ca": "a"}, "'tls_client_ca' needs 'tls_cert' and 'tls_key', and 'tokens'"),
        ({"public_url": "cdc.example"}, "which is not a URL like https://cdc.example"),
        ({"public_url": "https://cdc.example/path"}, "which is not a URL like https://cdc.example"),
        ({"trusted_proxy": "10.1.2.3/24"}, "neither an address nor a network"),
        ({"trusted_proxy": "*"}, "neither an address nor a network"),
        ({"max_rate": "0"}, "'max_rate' must be above zero"),
        ({"max_body": "0"}, "'max_body' must be above zero"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        access("127.0.0.1:1", **options)


# Names and origins


def test_a_proxy_serves_it_under_its_public_url(tmp_path: Path) -> None:
    with serving(tmp_path, public_url="https://cdc.example,http://cdc.lan:8000") as web:
        public = [("Host", "cdc.example"), ("Origin", "https://cdc.example"), ("Cookie", f"cdc_token={ADMIN}")]
        assert web.ask("/admin", method="DELETE", headers=public).status == 200
        assert json.loads(web.ask(headers=public).body)["secure"] is True
        kept_host = [("Origin", "https://cdc.example"), ("Cookie", f"cdc_token={ADMIN}")]
        assert web.ask("/admin", method="DELETE", headers=kept_host).status == 200
        for host in ("cdc.lan", "cdc.example:444", "other.example", "cdc.example.evil"):
            assert web.ask(headers=[("Host", host)], token=ADMIN).status == 421
        lan = [("Host", "cdc.lan:8000"), ("Origin", "http://cdc.lan:8000")]
        assert json.loads(web.ask(headers=lan, token=ADMIN).body)["secure"] is False
        plain = [("Host", "cdc.example"), ("Origin", "http://cdc.example")]
        assert web.ask("/admin", method="DELETE", headers=plain, token=ADMIN).status == 403


def test_headers_of_a_proxy_are_not_believed(tmp_path: Path) -> None:
    forged = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil.example"), ("X-Forwarded-For", "10.0.0.1")]
    with serving(tmp_path, max_rate=0.5) as web:
        assert json.loads(web.ask("/open", headers=forged).body)["secure"] is False
        forged[2] = ("X-Forwarded-For", "10.0.0.2")
        assert web.ask("/open", headers=forged).status == 429


def test_a_trusted_proxy_says_who_asks(tmp_path: Path) -> None:
    def told(*addresses: str) -> list[tuple[str, str]]:
        return [("X-Forwarded-For", ", ".join(addresses))]

    with serving(tmp_path, max_rate=0.5, trusted_proxy="10.9.0.0/16,127.0.0.1") as web:
        assert web.ask("/open", headers=told("192.0.2.1")).status == 200
        assert web.ask("/open", headers=told("192.0.2.1")).status == 429
        assert web.ask("/open", headers=told("192.0.2.2")).status == 200
        assert web.ask("/open", headers=told("192.0.2.3", "192.0.2.1", "10.9.8.7")).status == 429  # what it has added
    with serving(tmp_path, max_rate=0.5, trusted_proxy="192.0.2.9") as web:
        assert web.ask("/open", headers=told("192.0.2.1")).status == 200
        assert web.ask("/open", headers=told("192.0.2.2")).status == 429


def test_a_proxy_that_says_no_address_is_the_client_itself(tmp_path: Path) -> None:
    with serving(tmp_path, max_rate=0.5, trusted_proxy="127.0.0.1") as web:
        assert web.ask("/open", headers=[("X-Forwarded-For", "unknown")]).status == 200
        assert web.ask("/open", headers=[("X-Forwarded-For", "another")]).status == 429


def test_a_proxy_is_known_by_its_address_on_a_socket_for_both_kinds() -> None:
    seen: list[Any] = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope["client"])

    headers = [(b"x-forwarded-for", b"192.0.2.1")]
    for peer in ("::ffff:10.9.8.7", "::ffff:10.8.8.7", "::1"):
        scope = {"type": "http", "client": (peer, 1), "headers": headers, "scheme": "http"}
        asyncio.run(TrustedProxies(app, ["10.9.0.0/16"])(scope, None, None))  # type: ignore[arg-type]
    assert seen == [("192.0.2.1", 0), ("10.8.8.7", 1), ("::1", 1)]


# How often


def test_a_client_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    with serving(tmp_path, max_rate=0.5) as web:
        assert web.ask(token=VIEW).status == 200
        reply = web.ask(token=VIEW)
        assert (reply.status, reply.message) == (
            429,
            f"too many requests from this client; retry in {reply.headers['retry-after']} s",
        )
        assert int(reply.headers["retry-after"]) in (1, 2)
        assert web.ask(token=ADMIN).status == 200  # each caller has a bucket of its own
        assert web.ask(token="wrong").status == 401  # and so has each address, for those who are not known
        assert web.ask("/open").status == 429


def test_a_bucket_fills_again_with_time_and_never_above_its_size() -> None:
    clock = Clock()
    limit = RateLimit(2.0, 3.0, now=clock)
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 1]
    clock.now += 0.5
    assert [limit.take("a") for _ in range(2)] == [0, 1]
    clock.now += 1000
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 1]
    slow = RateLimit(0.1, 1.0, now=clock)
    assert [slow.take("a") for _ in range(2)] == [0, 10]


def test_many_addresses_take_no_more_memory() -> None:
    limit = RateLimit(1.0, 1.0)
    for number in range(12_000):
        limit.take(str(number))
    assert len(limit._buckets) == 10_000


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
    ],
)
def test_one_client_is_an_address_or_a_network_of_ipv6(one: str, other: str, same: bool) -> None:
    assert (Access.client_of((one, 1)) == Access.client_of((other, 2))) is same


# TLS


@pytest.fixture
def mutual(tmp_path: Path, certificates: Certificates) -> Iterator[Web]:
    with serving(tmp_path, address=EVERYWHERE, tls_client_ca=str(certificates.ca), **tls_options(certificates)) as web:
        (tmp_path / "tokens").write_text((tmp_path / "tokens").read_text() + "robot operate subject:CN=client\n")
        yield web


def client(certificates: Certificates, *, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(certificates.ca))
    if certificate is not None:
        found.load_cert_chain(*certificate)
    return found


def test_a_certificate_stands_for_a_token(mutual: Web, certificates: Certificates, tmp_path: Path) -> None:
    robot = client(certificates, certificate=(certificates.client_cert, certificates.client_key))
    seen = json.loads(mutual.ask(tls=robot).body)
    assert seen == {"user": "robot", "role": "OPERATE", "secure": True}
    assert mutual.ask("/operate", method="POST", body=b"{}", tls=robot).status == 200
    assert mutual.ask("/admin", method="DELETE", tls=robot).status == 403
    assert mutual.ask("/admin", method="DELETE", tls=robot, token=ADMIN).status == 200
    assert mutual.ask(tls=robot, token="wrong").status == 401
    nobody = client(certificates)
    assert mutual.ask(tls=nobody).status == 401
    assert mutual.ask("/open", tls=nobody).status == 200
    assert mutual.ask(tls=nobody, token=VIEW).status == 200
    write_tokens(tmp_path / "tokens")
    assert mutual.ask(tls=robot).status == 401


def test_a_certificate_of_another_authority_is_refused(mutual: Web, certificates: Certificates, tmp_path: Path) -> None:
    others = make_certificates(tmp_path / "others")
    for pair in ((others.client_cert, others.client_key), (certificates.server_cert, certificates.server_key)):
        with pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError)):
            mutual.ask(tls=client(certificates, certificate=pair))
    assert mutual.ask("/open", tls=client(certificates)).status == 200


def test_old_versions_of_tls_and_plain_text_are_refused(mutual: Web, certificates: Certificates) -> None:
    old = client(certificates)
    with pytest.deprecated_call():
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        mutual.ask("/open", tls=old)
    with mutual.connect() as connection:
        connection.sendall(b"GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert not connection.recv(100).startswith(b"HTTP")


def test_a_handshake_that_does_not_end_is_cut_off(tmp_path: Path, certificates: Certificates) -> None:
    with serving(tmp_path, request_timeout=0.3, **tls_options(certificates)) as web, web.connect() as connection:
        assert connection.recv(1) == b""


def test_connections_count_before_their_handshake_ends(tmp_path: Path, certificates: Certificates) -> None:
    with serving(tmp_path, max_connections=4, **tls_options(certificates)) as web:
        with web.connect(), web.connect(), pytest.raises((ssl.SSLError, ConnectionResetError)):
            web.ask("/open", tls=client(certificates))
        eventually("the end of the connections", lambda: not web.server.connections)
        assert web.ask("/open", tls=client(certificates)).status == 200


def test_a_server_that_closes_ends_handshakes(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, **tls_options(certificates)) as web, web.connect() as connection:
        state = web.server._server.server_state
        eventually("the handshake", lambda: bool(state.connections))
        web.server.close()
        assert not web.server._thread.is_alive()
        assert (web.server.connections, state.connections) == (0, set())
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    gc.collect()
    assert caplog.text == ""


def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    mine = make_certificates(tmp_path / "mine")
    with serving(tmp_path, **tls_options(mine)) as web:
        assert web.ask("/open", tls=client(mine)).status == 200
        shutil.copy(certificates.server_cert, mine.server_cert)  # the key is not there yet
        assert web.ask("/open", tls=client(mine)).status == 200
        assert "this pair cannot be used: key values mismatch" in caplog.text
        shutil.copy(certificates.server_key, mine.server_key)
        assert web.ask("/open", tls=client(certificates)).status == 200


def test_files_that_are_no_certificates_are_named(tmp_path: Path, certificates: Certificates) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    tokens = str(write_tokens(tmp_path / "tokens"))
    pair = tls_options(certificates)
    for options, why in (
        ({**pair, "tls_cert": str(empty)}, "this pair cannot be used"),
        ({**pair, "tls_key": "/nowhere"}, "this pair cannot be used: No such file or directory"),
        ({**pair, "tls_key": str(certificates.client_key)}, "this pair cannot be used: key values mismatch"),
        (
            {**pair, "tokens": tokens, "tls_client_ca": str(empty)},
            "use a PEM file with the certificates of authorities",
        ),
    ):
        with pytest.raises(ConfigError, match=why):
            access(str(LOOPBACK), **options)


def test_a_key_with_a_password_is_refused_instead_of_asking_for_it(tmp_path: Path, certificates: Certificates) -> None:
    from cryptography.hazmat.primitives import serialization as form

    key = form.load_pem_private_key(certificates.server_key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"password"))
    )
    began = time.monotonic()
    with pytest.raises(
        ConfigError, match="this pair cannot be used: the key is encrypted; use PEM files with a certificate and its"
    ):
        access(str(LOOPBACK), tls_cert=str(certificates.server_cert), tls_key=str(locked))
    assert time.monotonic() - began < 30


def test_a_subject_is_written_as_openssl_writes_it() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "Shop, Ltd"),), (("commonName", "ann"),))
    assert subject_of({"subject": subject}) == "CN=ann,O=Shop\\, Ltd,C=DE"
