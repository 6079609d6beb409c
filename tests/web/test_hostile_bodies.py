"""Hostile requests to everything that a server answers: no endpoint is open by mistake, and no body breaks one."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cdc_testing.rest_rig import ENVIRON, config, rest_plugins
from cdc_testing.web_rig import TOKENS, Reply, Web, serving

from cdc_core.web.endpoint import Endpoint, Role
from cdc_core.web.endpoints import all_endpoints

VIEW, OPERATE, ADMIN = TOKENS.values()
ENDPOINTS = all_endpoints(list)
JSON = ("Content-Type", "application/json")
SCRIPT = "<img src=x onerror=alert(1)>"
OPEN = {
    ("GET", "/ready"),
    ("GET", "/ui/login"),
    ("GET", "/ui/static/{path:path}"),
    ("POST", "/ui/login"),
    ("POST", "/ui/logout"),
}
"""What needs no token."""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    directory = tmp_path_factory.mktemp("web")
    with serving(directory, endpoints=ENDPOINTS, plugins=rest_plugins(), environ=ENVIRON, max_rate=1e6) as found:
        yield found
        assert found.ask("/connectors", token=VIEW).status == 200


def ask(web: Web, endpoint: Endpoint, token: str | None) -> Reply:
    path = re.sub(r"\{[^}]*\}", "nothing", endpoint.path)
    body = None if endpoint.method == "GET" else b"{}"
    return web.ask(path, method=endpoint.method, token=token, body=body, headers=[JSON])


def of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


# No endpoint is open by mistake


def test_what_needs_no_token_is_known() -> None:
    assert {(each.method, each.path) for each in ENDPOINTS if each.role == Role.ANYONE} == OPEN


def test_who_may_only_look_can_change_nothing() -> None:
    found = {(each.method, each.path) for each in ENDPOINTS if each.method != "GET" and each.role < Role.OPERATE}
    assert found <= OPEN


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if each.role], ids=of)
def test_every_endpoint_demands_a_token_with_its_role(web: Web, endpoint: Endpoint) -> None:
    for token in (None, "wrong"):
        reply = ask(web, endpoint, token)
        if endpoint.path.startswith("/ui") and endpoint.method == "GET":
            assert (reply.status, reply.headers["location"].partition("?")[0]) == (303, "/ui/login")
        else:
            assert reply.status == 401
    for role, token in ((Role.VIEW, VIEW), (Role.OPERATE, OPERATE), (Role.ADMIN, ADMIN)):
        if role < endpoint.role:
            assert ask(web, endpoint, token).status == 403
        elif not endpoint.path.endswith(("/live", "/topics/reset")):  # a stream, and what nobody may
            assert ask(web, endpoint, token).status in (200, 303, 400, 404, 409, 415)


# No body breaks one

POSTS = [each for each in ENDPOINTS if each.body is not None]


BODIES = {
    "empty": (b"", ""),
    "cut off": (b"{", "the body is not JSON"),
    "a list": (b"[]", "the body must be a JSON object"),
    "a text": (b'"x"', "the body must be a JSON object"),
    "not UTF-8": (b"\xff\xfe{}", "the body is not JSON"),
    "an encoded surrogate": (b'{"name": "\xed\xa0\x80"}', "the body is not JSON"),
    "half a surrogate pair": (b'{"name": "\\ud800"}', "an unpaired surrogate"),
    "NUL": (b'{"name": "a\\u0000b"}', "NUL"),
    "NaN": (b'{"name": NaN}', "the body is not JSON"),
    "a long number": (b'{"name": 1' + b"0" * 5000 + b"}", ""),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "deep lists": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
}
for depth in (60, 300, 600, 900, 940, 980, 1000):
    BODIES[f"objects {depth} deep"] = (b'{"a":' * depth + b'"x"' + b"}" * depth, "")


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("endpoint", [each for each in POSTS if "{" not in each.path], ids=of)
def test_a_body_that_is_wrong_is_refused(web: Web, endpoint: Endpoint, kind: str) -> None:
    body, why = BODIES[kind]
    reply = web.ask(endpoint.path, method=endpoint.method, token=ADMIN, body=body, headers=[JSON])
    assert (reply.status, why in reply.message) == (400, True), reply


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "x"])
def test_a_body_that_a_page_of_another_site_could_send_is_refused(web: Web, media: str) -> None:
    body = json.dumps({"name": "orders", "config": {}}).encode()
    reply = web.ask("/connectors", method="POST", token=ADMIN, body=body, headers=[("Content-Type", media)])
    assert (reply.status, "application/json" in reply.message) == (415, True)


def test_a_form_of_the_page_that_is_json_or_not_utf8_is_refused(web: Web) -> None:
    for media, body, status in (
        ("application/json", b"{}", 415),
        ("application/x-www-form-urlencoded", b"token=%ff", 400),
        ("application/x-www-form-urlencoded", b"&".join([b"a=b"] * 2001), 400),
    ):
        reply = web.ask("/ui/login", method="POST", body=body, headers=[("Content-Type", media)])
        assert reply.status == status


# Names


@pytest.mark.parametrize("name", ["a\r\nSet-Cookie: x=y", "../../etc/passwd", "a/b", "", " ", "x" * 5000, "a\x1b[31m"])
def test_a_name_that_forges_or_leads_elsewhere_is_refused(web: Web, tmp_path: Path, name: str) -> None:
    body = json.dumps({"name": name, "config": config(tmp_path)}).encode()
    reply = web.ask("/connectors", method="POST", token=ADMIN, body=body, headers=[JSON])
    assert reply.status == 400
    assert "set-cookie" not in reply.headers
    assert "location" not in reply.headers


def test_a_script_in_a_name_is_text_wherever_it_is_shown(web: Web) -> None:
    path = quote(SCRIPT, safe="")
    for target, media in ((f"/connectors/{path}", "application/json"), (f"/ui/changefeeds/{path}", "text/html")):
        for accept in ("text/html", "*/*"):
            reply = web.ask(target, token=VIEW, headers=[("Accept", accept)])
            assert reply.status in (400, 404)
            assert reply.headers["content-type"].startswith(media)
            assert "script-src 'self'" in reply.headers["content-security-policy"]
            if media == "text/html":
                assert SCRIPT.encode() not in reply.body


def test_a_login_leads_only_to_the_page_itself(web: Web) -> None:
    elsewhere = ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/metrics")
    for target in (*elsewhere, "/ui/../x", "/ui/../x\\@evil"):
        body = f"token={VIEW}&next={quote(target, safe='')}".encode()
        form = ("Content-Type", "application/x-www-form-urlencoded")
        reply = web.ask("/ui/login", method="POST", body=body, headers=[form])
        assert reply.status == 303
        assert reply.headers["location"].startswith("/ui")
        assert "evil" not in reply.headers["location"]
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()


def test_a_login_from_a_page_of_another_site_is_refused(web: Web) -> None:
    form = ("Content-Type", "application/x-www-form-urlencoded")
    headers = [form, ("Origin", "https://evil.example")]
    reply = web.ask("/ui/login", method="POST", body=f"token={VIEW}".encode(), headers=headers)
    assert reply.status == 403
    assert "set-cookie" not in reply.headers


# Secrets


@pytest.mark.parametrize("lines", [1, 30])
def test_thousands_of_secrets_are_refused_before_errors_are_searched_for_them(
    web: Web, tmp_path: Path, lines: int
) -> None:
    secrets = {f"password{n}": "\n".join(f"secret {n} {line}" for line in range(lines)) for n in range(5000 // lines)}
    body = json.dumps({"name": "secretive", "config": {**config(tmp_path), **secrets}}).encode()
    reply = web.ask("/connectors", method="POST", token=ADMIN, body=body, headers=[JSON])
    assert reply.status == 400
    assert b"too many secrets; write only the keys that the changefeed needs" in reply.body


@pytest.mark.parametrize(
    "source",
    [
        "counter://reader:hunter3-in-plain@host/shop",
        "counter://reader:hunter3/in-plain@host/shop",
        "counter://reader@host/shop?password=hunter3-in-plain",
        'counter://reader:"hunter3 in-plain"@host/shop',
        "nothing://reader:hunter3-in-plain@host/shop",
        "counter://reader:${NONE}hunter3-in-plain@host/shop",
    ],
)
def test_a_password_in_a_refused_configuration_is_told_nobody(
    web: Web, tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    given = {**config(tmp_path), "source": source}
    for method, path, body in (
        ("POST", "/connectors", {"name": "secretive", "config": given}),
        ("PUT", "/connectors/secretive/config", given),
        ("PUT", "/connector-plugins/cdc.Changefeed/config/validate", {**given, "name": "secretive"}),
    ):
        reply = web.ask(path, method=method, token=ADMIN, body=json.dumps(body).encode(), headers=[JSON])
        assert reply.status in (200, 400), reply
        assert b"hunter3" not in reply.body
        assert b"in-plain" not in reply.body
    assert web.ask("/connectors/secretive", token=ADMIN).status == 404
    assert "hunter3" not in caplog.text
