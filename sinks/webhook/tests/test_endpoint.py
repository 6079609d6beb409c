from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions

from cdc_core import ConfigError


def endpoint(uri: str, **options: Any) -> Endpoint:
    return Endpoint.of(uri, WebhookOptions(**options))


def test_a_uri_is_parsed() -> None:
    found = endpoint("webhook-https://Hooks.example.com/a/b%20c")
    assert (found.tls, found.host, found.port, found.target) == (True, "hooks.example.com", 443, "/a/b%20c")
    assert (found.authority, found.authorization) == ("hooks.example.com", None)


def test_a_port_is_kept() -> None:
    found = endpoint("webhook-https://example.com:8443")
    assert (found.port, found.target, found.authority) == (8443, "/", "example.com:8443")


def test_an_ipv6_address_is_accepted() -> None:
    found = endpoint("webhook-http://[::1]:8080/x")
    assert (found.host, found.port, found.authority) == ("::1", 8080, "[::1]:8080")


def test_an_international_host_is_accepted() -> None:
    found = endpoint("webhook-https://bücher.example/x")
    assert (found.ascii_host, found.authority) == ("xn--bcher-kva.example", "xn--bcher-kva.example")


@pytest.mark.parametrize("query", ["code=a%20b&x=1", "?code=a%20b&x=1"])
def test_the_query_comes_from_an_option(query: str) -> None:
    assert endpoint("webhook-https://example.com/f", webhook_query=query).target == "/f?code=a%20b&x=1"


def test_the_user_becomes_basic_authentication() -> None:
    found = endpoint("webhook-https://Aladdin:open%20sesame@example.com/")
    assert found.authorization == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="


def test_every_part_of_a_request_that_an_answer_may_echo_is_secret() -> None:
    secrets = endpoint("webhook-https://me:pw@h/hooks/T0/0123456789abcdef", webhook_query="code=a%20b").secrets()
    assert {"/hooks/T0/0123456789abcdef", "0123456789abcdef", "a b", "bWU6cHc=", "Basic bWU6cHc="} < secrets
    assert endpoint("webhook-https://h").secrets() == frozenset()


def test_the_path_is_secret_in_every_spelling() -> None:
    secrets = endpoint("webhook-https://h/hooks/T0/x%20y").secrets()
    for path in ("/hooks/T0/x%20y", "/hooks/T0/x y"):
        assert {path, path[1:], path.replace("/", r"\/"), path[1:].replace("/", r"\/")} <= secrets


def test_path_query_and_user_are_not_shown() -> None:
    found = endpoint("webhook-https://me:hush@example.com/services/hush", webhook_query="code=hush")
    assert "hush" not in f"{found} {found!r}"
    assert str(found) == "https://example.com:443"


@pytest.mark.parametrize("host", ["localhost", "app.localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_plain_http_to_this_machine_is_allowed(host: str) -> None:
    assert not endpoint(f"webhook-http://{host}/x").tls


@pytest.mark.parametrize("host", ["example.com", "10.0.0.1", "localhost.example.com"])
def test_plain_http_to_another_machine_needs_an_option(host: str) -> None:
    with pytest.raises(
        ConfigError, match=f"webhook-http:// to '{host}' would send rows and secrets.*insecure_allow_http=true"
    ):
        endpoint(f"webhook-http://{host}/x")
    assert endpoint(f"webhook-http://{host}/x", insecure_allow_http=True).port == 80


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("webhook-https:///hook", "has no host"),
        ("webhook-https://", "has no host"),
        ("webhook-https://:443/hook", "has no host"),
        ("webhook-https://example.com:99999/hook", "has no valid host and port"),
        ("webhook-https://example.com:x/hook", "has no valid host and port"),
        ("webhook-https://[::1/hook", "has no valid host and port"),
        ("webhook-https://example.com:0/", "has no host"),
        ("webhook-https://exam ple.com/", "has no host"),
        ("webhook-https://example.com/a#b", "contains '#'"),
        ("webhook-https://example.com/a b", "has a path with spaces"),
        ("webhook-https://example.com/ä", "has a path with spaces"),
    ],
)
def test_an_invalid_uri_is_refused(uri: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        endpoint(uri)
    assert sentence in str(raised.value)
    assert "Write webhook-https://host:port/path" in str(raised.value)


@pytest.mark.parametrize("host", ["example..com", ".example.com", f"{'a' * 64}.com", "bücher..example"])
def test_a_host_with_an_invalid_label_is_refused(host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        endpoint(f"webhook-https://{host}/x")
    assert f"has the invalid host '{host}'" in str(raised.value)


def test_two_sources_of_authorization_are_refused() -> None:
    for options in ({"webhook_auth_header": "hush"}, {"extra_headers": {"authorization": "hush"}}):
        with pytest.raises(ConfigError, match="Keep one of them") as raised:
            endpoint("webhook-https://me:hush@example.com/", **options)
        assert "hush" not in str(raised.value)
