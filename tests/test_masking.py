"""Masking: no secret survives, whatever form it takes, and everything else stays readable."""

import logging
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.masking import (
    MaskingFilter,
    has_unencoded_password,
    is_secret_name,
    mask,
    masked_uri,
    says_where_secrets_are,
    secret_forms,
    secret_texts,
    uri_secrets,
)


@pytest.mark.parametrize(
    ("uri", "shown", "secrets"),
    [
        ("postgresql://user:hunter2@host:5432/shop", "postgresql://user:***@host:5432/shop", {"hunter2"}),
        ("postgresql://user@host:5432/shop", "postgresql://user@host:5432/shop", set()),
        ("postgresql://host:5432/shop", "postgresql://host:5432/shop", set()),
        ("postgresql://u:p%40ss@h/d", "postgresql://u:***@h/d", {"p%40ss", "p@ss"}),
        ("postgresql://u:p@ss@h/d", "postgresql://u:***@h/d", {"p@ss"}),
        ("postgresql://u:pa/ss@h/d", "postgresql://u:***@h/d", {"pa/ss"}),
        ("postgresql://u:pa?ss@h/d", "postgresql://u:***@h/d", {"pa?ss"}),
        ("postgresql://u:pa#ss@h/d", "postgresql://u:***@h/d", {"pa#ss"}),
        ("postgresql://u:a:b@h/d", "postgresql://u:***@h/d", {"a:b"}),
        ("postgresql:///d?password=hunter2&user=u", "postgresql:///d?password=***&user=u", {"hunter2"}),
        ("postgresql://h/d?sslpassword=x%2By", "postgresql://h/d?sslpassword=***", {"x%2By", "x+y"}),
        (
            "s3://bucket/p?AWS_ACCESS_KEY_ID=AKIA&AWS_SECRET_ACCESS_KEY=abc%2Fdef",
            "s3://bucket/p?AWS_ACCESS_KEY_ID=AKIA&AWS_SECRET_ACCESS_KEY=***",
            {"abc%2Fdef", "abc/def"},
        ),
        ("file:///data/out?file_size=1MB", "file:///data/out?file_size=1MB", set()),
        ("s3://bucket/a@b", "s3://bucket/a@b", set()),
        ("postgresql://a:1,b:2/d?user=x@y", "postgresql://a:1,b:2/d?user=x@y", set()),
        ("postgresql://[::1]:5432/d?user=x@y", "postgresql://[::1]:5432/d?user=x@y", set()),
        ("postgresql:///d?user=x@y", "postgresql:///d?user=x@y", set()),
        ("no uri at all", "no uri at all", set()),
        ("", "", set()),
    ],
)
def test_passwords_and_secret_parameters_are_found(uri: str, shown: str, secrets: set[str]) -> None:
    assert masked_uri(uri) == shown
    assert uri_secrets(uri) == secrets


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("webhook-https://hooks.example/services/T0/B1/secret", "webhook-https://hooks.example/***"),
        ("webhook-https://user:pw@hooks.example:8443/a@b?x=y", "webhook-https://hooks.example:8443/***"),
        ("webhook-https://user@hooks.example", "webhook-https://hooks.example"),
        ("webhook-https://hooks.example/", "webhook-https://hooks.example/"),
        ("webhook-https://user:p/w@hooks.example/x", "webhook-https://hooks.example/***"),
    ],
)
def test_of_a_place_whose_path_is_a_secret_only_the_host_is_left(uri: str, shown: str) -> None:
    assert masked_uri(uri, secret_path=True) == shown


def test_where_a_secret_comes_from_is_none() -> None:
    uri = "s3://bucket/x?AUTH=specified&AWS_SECRET_ACCESS_KEY=hunter2"
    assert uri_secrets(uri) == {"hunter2"}
    assert masked_uri(uri) == "s3://bucket/x?AUTH=specified&AWS_SECRET_ACCESS_KEY=***"
    assert list(secret_texts({"auth": "implicit", "token": "implicitly"})) == ["implicitly"]
    assert list(secret_texts({"auth": "hunter22", "token": "implicit"})) == ["hunter22", "implicit"]
    assert masked_uri("db://u@h/d?password=implicit&AUTH=implicit") == "db://u@h/d?password=***&AUTH=implicit"


@pytest.mark.parametrize("value", [{"x": 1}, ["x"], 1, None, True])
def test_auth_may_have_a_value_that_is_no_text(value: Any) -> None:
    assert not says_where_secrets_are("auth", value)


def test_a_number_may_be_a_secret_and_a_boolean_is_none() -> None:
    assert list(secret_texts({"ssl.keystore.password": 123456, "token": True, "n": 3})) == ["123456"]


def test_a_password_that_is_not_encoded_is_recognized() -> None:
    assert has_unencoded_password("postgresql://u:pa/ss@h/d")
    assert has_unencoded_password("postgresql://u:pa@ss@h/d")
    assert not has_unencoded_password("postgresql://u:pa%2Fss@h/d")
    assert not has_unencoded_password("postgresql://h:5432/d@x")


@given(st.text(min_size=4), st.sampled_from(["user:{}@h/d", "u@h/d?password={}", "h:1/d?token={}&x=y"]))
def test_no_encoded_password_is_in_the_masked_uri(secret: str, shape: str) -> None:
    encoded = quote(secret.encode("utf-8", "surrogatepass"), safe="")
    uri = f"db://{shape.format(encoded)}"
    assert masked_uri(uri) == f"db://{shape.format('***')}"
    assert encoded in uri_secrets(uri)


@given(st.text(st.characters(codec="utf-8"), min_size=4), st.text(st.characters(codec="utf-8")))
def test_no_form_of_a_secret_survives(secret: str, text: str) -> None:
    forms = secret_forms([secret])
    shown = mask(f"{text} {secret} {secret!r} {quote(secret)} {text}", forms)
    if not any(form in "*** ***" for form in forms):
        assert all(form not in shown for form in forms if form not in text.replace(secret, ""))


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("Hunter-Two", "column HUNTER-TWO, hunter-two and hUNTER-tWO"),
        ("first line\nSecond Line\r\n", "in second line: first line Second Line; 'first line\\nSecond Line\\r\\n'"),
        ("two  words", "two words, TWO  WORDS"),
        ('p\u00e4"ss', 'p\u00e4"ss as {"password": "p\u00e4\\"ss"}'),
        ("\u0391\u03a3\u0391\u03a3", "\u0391\u03a3\u0391\u03a3\u0391 \u03b1\u03c3\u03b1\u03c3"),
    ],
)
def test_a_secret_is_masked_in_any_case_and_each_of_its_lines(secret: str, text: str) -> None:
    shown = mask(text, secret_forms([secret])).casefold()
    assert not any(line.casefold() in shown for line in (*secret.splitlines(), " ".join(secret.split())))


@pytest.mark.parametrize(
    "before",
    [
        "Authorization: Basic ",
        '"proxy-authorization": "bearer ',
        "(b'Authorization', b'Basic ",
        '{\\"authorization\\": \\"Token ',
        "Authorization: Splunk ",
        "Authorization: GenieKey ",
        "Authorization: SharedKey ",
        "Authorization: Api-Key ",
        "Authorization: Api-Token ",
    ],
)
def test_an_authorization_that_a_server_repeats_is_masked(before: str) -> None:
    assert mask(f"{before}dXNlcjpodW50ZXIy+/==', host: x", []) == f"{before}***', host: x"
    assert mask(f"{before}dXNlcjpwdzEy', host: x", []) == f"{before}***', host: x"
    for value in ("TOKEN", "${PASSWORD}", "<YOUR_TOKEN>", "authentication required", "Verification failed."):
        assert mask(f"{before}{value}", []) == f"{before}{value}"


def test_a_secret_in_base64_is_masked_as_text_too() -> None:
    assert mask("hunter2 is aHVudGVyMg==", secret_forms(iter(["aHVudGVyMg=="]))) == "*** is ***"
    assert mask("hunter2>>>?", secret_forms(["aHVudGVy\nMj4-Pj8=\n"])) == "***"
    assert mask("hunter2>>>?", secret_forms(["aHVudGVyMj4 Pj8="])) == "***"
    for secret in ("dXNlcjpodW50ZXIy", "Basic dXNlcjpodW50ZXIy\n"):
        assert mask("a user with hunter2", secret_forms([secret])) == "a user with ***"


def test_longer_secrets_go_first() -> None:
    assert mask("abcdef abcd", ["abcd", "abcdef"]) == "*** ***"


def test_a_short_secret_is_masked_only_where_it_stands_alone() -> None:
    assert mask("password=pg at pgsql, 'pg'", ["pg"]) == "password=*** at pgsql, '***'"
    for secret in ("postgres", "Postgres"):
        assert mask("PostgreSQL refuses user 'postgres'", [secret]) == "PostgreSQL refuses user '***'"
        names = "cdc-rangefeed-postgres, postgres-16, postgres://h"
        assert mask(f"{names}: POSTGRES", [secret]) == f"{names}: ***"
    assert mask("postgresql://u:postgresql@h", ["postgresql"]) == "postgresql://u:***@h"


@pytest.mark.parametrize(
    "name",
    [
        *("password", "PGPASSWORD", "sasl_password", "api_key", "client_key", "AWS_SECRET_ACCESS_KEY"),
        *("webhook_auth_header", "sas", "sasl.oauthbearer.assertion.private.key.pem", "ssl.key.pem", "ssl_key"),
        *("ssl.key", "ssl-key", "DB_PASS", "CDC_DB_PASS", "db.pass", "PGPASS", "pass", "DB_PW"),
        *("Set-Cookie", "AZURE_STORAGE_CONNECTION_STRING", "fs.azure.sas.container.account.blob.core.windows.net"),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("key_in_value", "AWS_ACCESS_KEY_ID", "topic_prefix", "key_column", "user", "author", "sslkey", "bypass"),
        *("compass", "passive", "is_passive", "PGPASSFILE", "sasl.mechanism", "connections"),
    ],
)
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_the_filter_masks_message_arguments_and_causes(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.masking")
    masking = MaskingFilter(["hunter2"])
    caplog.handler.addFilter(masking)
    try:
        raise_nested()
    except RuntimeError:
        logger.exception("connecting with %s", {"password": "hunter2"})
    caplog.handler.removeFilter(masking)
    assert "hunter2" not in caplog.text
    assert "connecting with {'password': '***'}" in caplog.text
    assert "ValueError: bad password ***" in caplog.text
    assert "RuntimeError: cannot connect" in caplog.text


def test_the_filter_learns_more_secrets() -> None:
    masking = MaskingFilter()
    masking.add(["hunter2"])
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "a hunter2 %d", (5,), None)
    assert masking.filter(record)
    assert record.getMessage() == "a *** 5"


def raise_nested() -> None:
    try:
        raise ValueError("bad password hunter2")
    except ValueError as error:
        raise RuntimeError("cannot connect") from error
