from __future__ import annotations

import base64
import pickle

import pytest
from cdc_schema_registry import RegistryAddress

from cdc_core import OptionError

OWNER = "encoder 'avro'"
PEM = "-----BEGIN CERTIFICATE-----\n+/+/\n-----END CERTIFICATE-----\n"
ENCODED = base64.b64encode(PEM.encode()).decode()


def parse(text: str) -> RegistryAddress:
    return RegistryAddress.parse(text, owner=OWNER)


def test_all_parts_of_the_option_are_parsed() -> None:
    address = parse(
        f"https://k%40ey:se%2Fcr%3Aet@host:8443/api/v7/?timeout=2m&ca_cert={ENCODED}&client_cert={ENCODED}&client_key={ENCODED}"
    )
    assert address == RegistryAddress(
        url="https://host:8443/api/v7",
        user="k@ey",
        password="se/cr:et",
        timeout_s=120.0,
        ca_cert=PEM,
        client_cert=PEM,
        client_key=PEM,
    )


def test_a_plain_url_has_no_credentials_and_a_timeout_of_thirty_seconds() -> None:
    assert parse("http://[::1]:8081") == RegistryAddress(url="http://[::1]:8081", timeout_s=30.0)


def test_a_registry_may_have_replicas() -> None:
    address = parse("https://me:ge,heim@a:443 ,HTTPS://b,  https://[::1]:8081/v1/?timeout=5s")
    assert (address.url, address.password) == ("https://a:443,https://b,https://[::1]:8081/v1", "ge,heim")
    assert address.timeout_s == 5.0


def test_an_empty_parameter_is_ignored() -> None:
    assert parse("https://host?timeout=&ca_cert=&client_cert=&client_key=&insecure_tls_skip_verify=") == parse(
        "https://host"
    )


def test_any_server_can_be_trusted() -> None:
    assert parse("https://host?insecure_tls_skip_verify=true").insecure_tls_skip_verify


def test_a_user_may_have_no_password() -> None:
    address = parse("https://token@host")
    assert (address.user, address.password) == ("token", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("host:8081", "must be a URL such as https://key:secret@host:443"),
        ("kafka://host:9092", "must be a URL such as"),
        ("https://", "must be a URL such as"),
        ("https://host:port", "must be a URL such as"),
        ("https://me:ge/heim@host", "percent-encoded"),
        ("https://me:ge?heim@host", "percent-encoded"),
        ("https://me:ge#heim@host", "percent-encoded"),
        ("https://a,https://me:geheim@b", "write the user and password in the first URL only"),
        ("https://a?timeout=1s,https://b", "parameters in the last"),
        (f"https://a,http://b?ca_cert={ENCODED}", "ca_cert can only be used with https://"),
        ("https://a,b", "must be a URL such as"),
        ("https://host#x", "must not contain '#'"),
        ("https://m%3Ae:geheim@host", "must not contain a colon"),
        ("https://host?timeuot=1s", "has no option 'timeuot'; did you mean 'timeout'?"),
        ("https://host?x", "has no option 'x'; known: ca_cert, "),
        ("https://host?timeout=soon", "option 'timeout' is 'soon': must be a duration"),
        ("https://host?timeout=0", "'timeout' must be greater than 0"),
        ("https://host?timeout=1s&timeout=2s", "has parameter 'timeout' twice"),
        ("https://host?ca_cert=geheim", "'ca_cert' must be PEM text in base64"),
        (f"https://host?ca_cert={base64.b64encode(b'geheim').decode()}", "'ca_cert' must be PEM text in base64"),
        (f"https://host?client_cert={ENCODED}", "'client_cert' and 'client_key' must be set together"),
        (f"https://host?ca_cert={ENCODED}&insecure_tls_skip_verify=true", "'ca_cert' cannot be combined with"),
        (f"http://host?ca_cert={ENCODED}", "ca_cert can only be used with https://"),
    ],
)
def test_an_invalid_address_is_refused_with_the_remedy(text: str, complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(text)
    message = str(refused.value)
    assert message.startswith("encoder 'avro': option 'confluent_schema_registry'")
    assert complaint in message
    assert "geheim" not in message
    assert "heim@" not in message


def test_secrets_are_not_shown() -> None:
    address = parse(f"https://me:geheim@host?client_cert={ENCODED}&client_key={ENCODED}")
    assert str(address) == "https://host"
    for hidden in ("geheim", "BEGIN", ENCODED):
        assert hidden not in repr(address)


def test_an_address_can_be_pickled_and_hashed() -> None:
    address = parse("https://me:geheim@host")
    assert {pickle.loads(pickle.dumps(address)): 1}[address] == 1
