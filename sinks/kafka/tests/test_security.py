from __future__ import annotations

import base64
from typing import Any

import pytest
from cdc_sink_kafka.options import KafkaOptions
from cdc_sink_kafka.security import Address, security_properties

from cdc_core import ConfigError, parse_options, secret_values

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
BASE64 = base64.b64encode(PEM.encode()).decode()
BEARER = {
    "sasl_enabled": True,
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_client_id": "id",
    "sasl_client_secret": base64.b64encode(b"s3cret").decode(),
    "sasl_token_url": "https://idp/token",
}
CLOUD = {"api_key": "K", "api_secret": "S"}


def properties(uri: str, values: dict[str, Any]) -> dict[str, Any]:
    return security_properties(Address.of(uri), parse_options(KafkaOptions, values, owner="sink 'kafka'"))


@pytest.mark.parametrize(
    ("uri", "brokers"),
    [
        ("kafka://a:9092", "a:9092"),
        ("kafka://a:1,b:2/", "a:1,b:2"),
        ("kafka://[::1]:9092", "[::1]:9092"),
        ("kafka://a,b:65535", "a,b:65535"),
        ("confluent-cloud://a.confluent.cloud:9092", "a.confluent.cloud:9092"),
        ("azure-event-hub://ns.servicebus.windows.net", "ns.servicebus.windows.net:9093"),
    ],
)
def test_the_uri_names_the_brokers(uri: str, brokers: str) -> None:
    assert Address.of(uri).brokers == brokers


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("kafka://user:pw@a:9092", "has a user before its hosts; use sasl_user and sasl_password instead"),
        ("kafka://a:9092/topic", "has the path '/topic', which has no effect; use topic_prefix or topic_name"),
        ("kafka://", "names no broker; write kafka://host:9092"),
        ("kafka://,", "names no broker; write kafka://host:9092"),
        ("kafka://a:1,b:99999", "names the broker 'b:99999', which is not a host and port"),
        ("kafka://a:0", "names the broker 'a:0', which is not a host and port"),
        ("kafka://a:x", "names the broker 'a:x', which is not a host and port"),
        ("kafka://:9092", "names the broker ':9092', which is not a host and port"),
        ("kafka://::1:9092", "names the broker '::1:9092', which is not a host and port"),
    ],
)
def test_a_uri_with_anything_but_brokers_is_refused(uri: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Address.of(uri)
    assert reason in str(refused.value)
    assert "pw" not in str(refused.value)


def test_certificates_may_be_base64_or_text() -> None:
    for value in (BASE64, PEM, BASE64.replace("+", " ")):
        found = properties(
            "kafka://a:1", {"tls_enabled": "true", "ca_cert": value, "client_cert": value, "client_key": value}
        )
        assert found == {
            "security.protocol": "ssl",
            "ssl.ca.pem": PEM,
            "ssl.certificate.pem": PEM,
            "ssl.key.pem": PEM,
        }


def test_what_is_around_the_certificates_may_have_any_encoding() -> None:
    value = base64.b64encode("subject=O=Société\n".encode("latin-1") + PEM.encode()).decode()
    found = properties("kafka://a:1", {"tls_enabled": "true", "ca_cert": value})
    assert found["ssl.ca.pem"].endswith(f"\n{PEM}")


def test_verification_can_be_skipped() -> None:
    found = properties("kafka://a:1", {"tls_enabled": "true", "insecure_tls_skip_verify": "true"})
    assert found["enable.ssl.certificate.verification"] is False


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_plain_and_scram_need_user_and_password(mechanism: str) -> None:
    values = {"sasl_enabled": "true", "sasl_mechanism": mechanism, "sasl_user": "u", "sasl_password": "p"}
    assert properties("kafka://a:1", values) == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": mechanism,
        "sasl.username": "u",
        "sasl.password": "p",
    }


def test_oauth_uses_client_credentials() -> None:
    assert properties("kafka://a:1", {**BEARER, "tls_enabled": True, "sasl_scopes": "a,b"}) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.scope": "a b",
    }


def test_the_cloud_schemes_set_tls_and_sasl() -> None:
    found = properties("confluent-cloud://a:9092", CLOUD)
    assert found == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "K",
        "sasl.password": "S",
    }
    found = properties(
        "azure-event-hub://ns.servicebus.windows.net:9093", {"shared_access_key_name": "N", "shared_access_key": "K=="}
    )
    assert found["sasl.username"] == "$ConnectionString"
    assert found["sasl.password"] == (
        "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=N;SharedAccessKey=K=="
    )


@pytest.mark.parametrize(
    ("uri", "values", "reason"),
    [
        ("kafka://a:1", {"ca_cert": BASE64}, "the option 'ca_cert' needs tls_enabled=true"),
        ("kafka://a:1", {"sasl_user": "u"}, "the option 'sasl_user' needs sasl_enabled=true"),
        ("kafka://a:1", {"sasl_mechanism": "PLAIN", "sasl_scopes": "s"}, "'sasl_scopes' needs sasl_enabled=true"),
        ("kafka://a:1", {"sasl_mechanism": "SCRAM-SHA-256"}, "the option 'sasl_mechanism' needs sasl_enabled=true"),
        ("kafka://a:1", {**BEARER, "sasl_user": "u"}, "'sasl_user' is not for the SASL mechanism OAUTHBEARER; remove"),
        ("confluent-cloud://a:1", {**CLOUD, "sasl_client_id": "i"}, "'sasl_client_id' is not for the SASL mechanism P"),
        ("kafka://a:1", {**BEARER, "sasl_client_secret": "rawsecret4u="}, "'sasl_client_secret' is not base64 of text"),
        ("kafka://a:1", {"sasl_enabled": True, "sasl_user": "u"}, "needs the option 'sasl_password' for the SASL"),
        (
            "kafka://a:1",
            {"tls_enabled": True, "client_cert": BASE64},
            "'client_cert' and 'client_key' must be set together",
        ),
        ("kafka://a:1", {"tls_enabled": True, "ca_cert": "%%%"}, "the option 'ca_cert' is neither PEM text nor"),
        ("kafka://a:1", {"tls_enabled": True, "ca_cert": "/etc/tls"}, "PEM. To read a file, write ${file:/path}"),
        ("kafka://a:1", {"tls_enabled": True, "ca_cert": "MIIB/w=="}, "the option 'ca_cert' is neither PEM text nor"),
        ("kafka://a:1", {"sasl_handshake": False}, "sasl_handshake=false is not supported"),
        (
            "kafka://a:1",
            {"sasl_enabled": True, "sasl_mechanism": "AWS_MSK_IAM"},
            "cannot authenticate with AWS_MSK_IAM",
        ),
        ("kafka://a:1", {"sasl_aws_region": "eu"}, "cannot authenticate with AWS_MSK_IAM"),
        ("kafka://a:1", {"api_key": "k"}, "the option 'api_key' is only for confluent-cloud:// URIs"),
        ("confluent-cloud://a:1", {"api_key": "k"}, "needs the option 'api_secret' with a confluent-cloud:// URI"),
        (
            "confluent-cloud://a:1",
            {**CLOUD, "sasl_user": "u"},
            "takes user, password and mechanism from api_key and api_secret",
        ),
        (
            "kafka://a:1",
            {**BEARER, "sasl_grant_type": "password"},
            "the option 'sasl_grant_type' is 'password', but must be client_credentials",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused_in_one_sentence(
    uri: str, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        properties(uri, values)
    assert reason in str(refused.value)


def test_secrets_are_masked() -> None:
    secrets = {
        "sasl_password": "a-secret-1",
        "sasl_client_secret": "a-secret-2",
        "client_key": "a-secret-3",
        "api_secret": "a-secret-4",
        "shared_access_key": "a-secret-5",
        "librdkafka": {"ssl.key.password": "a-secret-6"},
    }
    assert set(secret_values(parse_options(KafkaOptions, secrets, owner="sink 'kafka'"))) == {
        f"a-secret-{number}" for number in range(1, 7)
    }
