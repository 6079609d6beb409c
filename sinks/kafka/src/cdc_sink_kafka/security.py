"""Addresses, TLS and SASL, as librdkafka's properties."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace
from typing import Any

from cdc_core import ConfigError
from cdc_sink_kafka.options import KafkaOptions

_PASSWORD_OPTIONS = ("sasl_user", "sasl_password")
_TOKEN_OPTIONS = ("sasl_client_id", "sasl_client_secret", "sasl_token_url", "sasl_scopes")
_AWS_OPTIONS = ("sasl_aws_region", "sasl_aws_iam_role_arn", "sasl_aws_iam_session_name")
_TLS_OPTIONS = ("ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify")
_CLOUD_OPTIONS = {
    "confluent-cloud": ("api_key", "api_secret"),
    "azure-event-hub": ("shared_access_key_name", "shared_access_key"),
}
_BROKER = re.compile(r"(\[[^\[\]]+\]|[^\s:\[\]]+)(?::([0-9]{1,5}))?")
_LAST_PORT = 65535
_NO_PEM = "neither PEM text nor base64-encoded PEM. To read a file, write ${file:/path}"
_NO_TEXT = "not base64 of text; set it to the output of `base64 -w0`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The scheme and the brokers of a sink's URI."""

    scheme: str
    brokers: str

    @classmethod
    def of(cls, uri: str) -> Address:
        """Read *uri*. Raises: ConfigError for anything but `scheme://host:port,host:port`."""
        scheme, _, rest = uri.partition("://")
        brokers, _, path = rest.partition("/")
        if "@" in brokers:
            raise ConfigError(
                f"the URI of sink 'kafka' has a user before its hosts; use sasl_user and sasl_password instead:"
                f" {scheme}://host:9092?sasl_enabled=true&sasl_user=..."
            )
        if path:
            raise ConfigError(
                f"the URI of sink 'kafka' has the path '/{path}', which has no effect; use topic_prefix or topic_name"
            )
        if not brokers.strip(", "):
            raise ConfigError(f"the URI of sink 'kafka' names no broker; write {scheme}://host:9092")
        if scheme == "azure-event-hub" and ":" not in brokers:
            brokers += ":9093"
        for broker in filter(None, map(str.strip, brokers.split(","))):
            found = _BROKER.fullmatch(broker)
            if found is None or not 1 <= int(found[2] or _LAST_PORT) <= _LAST_PORT:
                raise ConfigError(
                    f"the URI of sink 'kafka' names the broker '{broker}', which is not a host and port; write"
                    f" {scheme}://host:9092"
                )
        return cls(scheme=scheme, brokers=brokers)


def security_properties(address: Address, options: KafkaOptions) -> dict[str, Any]:
    """Return the properties for TLS and SASL. Raises: ConfigError for options that contradict each other."""
    options = _for_cloud(address, options)
    _refuse_unused(options)
    found: dict[str, Any] = {}
    if options.tls_enabled:
        found |= _tls(options)
    if options.sasl_enabled:
        found |= _sasl(options)
    protocol = ("sasl_" if options.sasl_enabled else "") + ("ssl" if options.tls_enabled else "plaintext")
    return {"security.protocol": protocol, **found}


def _for_cloud(address: Address, options: KafkaOptions) -> KafkaOptions:
    """Return *options* with those that the scheme sets."""
    for scheme, names in _CLOUD_OPTIONS.items():
        given = [name for name in names if getattr(options, name) is not None]
        if scheme == address.scheme:
            missing = [name for name in names if name not in given]
            if missing:
                raise ConfigError(f"sink 'kafka' needs the option '{missing[0]}' with a {scheme}:// URI")
        elif given:
            raise ConfigError(f"sink 'kafka': the option '{given[0]}' is only for {scheme}:// URIs")
    if address.scheme not in _CLOUD_OPTIONS:
        return options
    if options.sasl_user is not None or options.sasl_password is not None or options.sasl_mechanism != "plain":
        raise ConfigError(
            f"sink 'kafka': a {address.scheme}:// URI takes user, password and mechanism from"
            f" {' and '.join(_CLOUD_OPTIONS[address.scheme])}; remove the sasl options"
        )
    if address.scheme == "confluent-cloud":
        user, password = options.api_key, options.api_secret
    else:
        host = address.brokers.split(",")[0].rpartition(":")[0]
        user = "$ConnectionString"
        password = (
            f"Endpoint=sb://{host}/;SharedAccessKeyName={options.shared_access_key_name}"
            f";SharedAccessKey={options.shared_access_key}"
        )
    return replace(options, tls_enabled=True, sasl_enabled=True, sasl_user=user, sasl_password=password)


def _refuse_unused(options: KafkaOptions) -> None:
    if not options.tls_enabled:
        for name in _TLS_OPTIONS:
            if getattr(options, name):
                raise ConfigError(f"sink 'kafka': the option '{name}' needs tls_enabled=true")
    if not options.sasl_handshake:
        raise ConfigError("sink 'kafka': sasl_handshake=false is not supported: librdkafka always sends the handshake")
    if options.sasl_mechanism == "aws_msk_iam" or any(getattr(options, name) for name in _AWS_OPTIONS):
        raise ConfigError(
            "sink 'kafka' cannot authenticate with AWS_MSK_IAM, because librdkafka does not support it; enable"
            " SCRAM-SHA-512 on the cluster, and use SCRAM-SHA-512"
        )
    bearer = options.sasl_mechanism == "oauthbearer"
    if not options.sasl_enabled:
        given = [name for name in (*_PASSWORD_OPTIONS, *_TOKEN_OPTIONS) if getattr(options, name)]
        if given or options.sasl_mechanism != "plain":
            first = [*given, "sasl_mechanism"][0]
            raise ConfigError(f"sink 'kafka': the option '{first}' needs sasl_enabled=true")
    for name in _PASSWORD_OPTIONS if bearer else _TOKEN_OPTIONS:
        if getattr(options, name):
            raise ConfigError(
                f"sink 'kafka': the option '{name}' is not for the SASL mechanism {options.sasl_mechanism.upper()};"
                " remove it, or set another sasl_mechanism"
            )


def _tls(options: KafkaOptions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.insecure_tls_skip_verify:
        found["enable.ssl.certificate.verification"] = False
        found["ssl.endpoint.identification.algorithm"] = "none"
    if options.ca_cert:
        found["ssl.ca.pem"] = _pem("ca_cert", options.ca_cert)
    if bool(options.client_cert) != bool(options.client_key):
        raise ConfigError("sink 'kafka': the options 'client_cert' and 'client_key' must be set together")
    if options.client_cert and options.client_key:
        found["ssl.certificate.pem"] = _pem("client_cert", options.client_cert)
        found["ssl.key.pem"] = _pem("client_key", options.client_key)
    return found


def _sasl(options: KafkaOptions) -> dict[str, Any]:
    mechanism = options.sasl_mechanism.upper()
    if mechanism != "OAUTHBEARER":
        _need(mechanism, options, "sasl_user", "sasl_password")
        return {
            "sasl.mechanisms": mechanism,
            "sasl.username": options.sasl_user,
            "sasl.password": options.sasl_password,
        }
    _need(mechanism, options, "sasl_client_id", "sasl_client_secret", "sasl_token_url")
    if options.sasl_grant_type != "client_credentials":
        raise ConfigError(
            f"sink 'kafka': the option 'sasl_grant_type' is '{options.sasl_grant_type}', but must be client_credentials"
        )
    found = {
        "sasl.mechanisms": mechanism,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": options.sasl_client_id,
        "sasl.oauthbearer.client.secret": _text("sasl_client_secret", options.sasl_client_secret or ""),
        "sasl.oauthbearer.token.endpoint.url": options.sasl_token_url,
    }
    if options.sasl_scopes:
        found["sasl.oauthbearer.scope"] = " ".join(options.sasl_scopes)
    return found


def _need(mechanism: str, options: KafkaOptions, *names: str) -> None:
    for name in names:
        if not getattr(options, name):
            raise ConfigError(f"sink 'kafka' needs the option '{name}' for the SASL mechanism {mechanism}")


def _pem(name: str, value: str) -> str:
    text = value if "-----BEGIN" in value else _decoded(name, value, _NO_PEM).decode("ascii", "replace")
    if "-----BEGIN" not in text:
        raise _refused(name, _NO_PEM)
    return text


def _text(name: str, value: str) -> str:
    try:
        return _decoded(name, value, _NO_TEXT).decode()
    except UnicodeDecodeError:
        raise _refused(name, _NO_TEXT) from None


def _decoded(name: str, value: str, fault: str) -> bytes:
    """Return the bytes that *value* encodes. A plus sign that was not encoded in a URI arrives as a blank."""
    try:
        return base64.b64decode(value.strip().replace(" ", "+"), validate=True)
    except ValueError:
        raise _refused(name, fault) from None


def _refused(name: str, fault: str) -> ConfigError:
    return ConfigError(f"sink 'kafka': the option '{name}' is {fault}")
