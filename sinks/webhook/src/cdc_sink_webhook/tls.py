"""Whom the client trusts, and how it proves who it is."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile

from cdc_core.errors import ConfigError
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions

__all__ = ["tls_context"]

_OPTIONS = ("ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify")


def tls_context(endpoint: Endpoint, options: WebhookOptions) -> ssl.SSLContext | None:
    """Return what TLS connections are made with; None for an endpoint without TLS. Raises: ConfigError."""
    if not endpoint.tls:
        for name in _OPTIONS:
            if getattr(options, name):
                raise ConfigError(f"sink 'webhook': the option '{name}' needs a webhook-https:// URI")
        return None
    if bool(options.client_cert) != bool(options.client_key):
        raise ConfigError("sink 'webhook': the options 'client_cert' and 'client_key' need each other")
    # an empty one is refused: a file or variable that lacks what it should hold
    given = options.ca_cert is not None
    context = _trusting(_pem("ca_cert", options.ca_cert or "")) if given else ssl.create_default_context()
    if options.insecure_tls_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.client_cert is not None and options.client_key is not None:
        _load_client(context, _pem("client_cert", options.client_cert), _pem("client_key", options.client_key))
    return context


def _trusting(authorities: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authorities)
    except (ssl.SSLError, ValueError):
        raise ConfigError("sink 'webhook': the option 'ca_cert' holds no certificate that can be read") from None


def _load_client(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Have *context* prove who the client is. OpenSSL reads these from files only: one for us alone, for a moment."""
    descriptor, path = tempfile.mkstemp(prefix="cdc-webhook-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate}\n{key}\n")
        context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError:
        raise ConfigError(
            "sink 'webhook': the options 'client_cert' and 'client_key' hold no certificate with its unencrypted key"
        ) from None
    finally:
        os.unlink(path)


def _no_password() -> str:
    """Keep OpenSSL from asking for one at the terminal."""
    return ""


def _pem(name: str, value: str) -> str:
    """Return the PEM text that *value* holds. In a URI that was not encoded a plus sign has become a blank."""
    if "-----BEGIN" in value:
        return value
    try:
        text = base64.b64decode(value.strip().replace(" ", "+"), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ConfigError(f"sink 'webhook': the option '{name}' is not base64 of PEM text") from None
    if "-----BEGIN" not in text:
        raise ConfigError(f"sink 'webhook': the option '{name}' does not hold PEM text")
    return text
