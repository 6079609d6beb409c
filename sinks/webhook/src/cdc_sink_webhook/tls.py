"""TLS settings: trusted authorities and the certificate of the client."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile

from cdc_core import ConfigError
from cdc_sink_webhook.endpoint import Endpoint
from cdc_sink_webhook.options import WebhookOptions

_OPTIONS = ("ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify")


def tls_context(endpoint: Endpoint, options: WebhookOptions) -> ssl.SSLContext | None:
    """Return the settings of TLS connections; None for an endpoint without TLS. Raises: ConfigError."""
    if not endpoint.tls:
        for name in _OPTIONS:
            if getattr(options, name):
                raise ConfigError(f"sink 'webhook': option '{name}' requires a webhook-https:// URI")
        return None
    if bool(options.client_cert) != bool(options.client_key):
        raise ConfigError(
            "sink 'webhook': options 'client_cert' and 'client_key' must be set together. Set both or neither"
        )
    # an empty value is an error, not a default: its file or variable lacks the certificate
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
        raise ConfigError("sink 'webhook': option 'ca_cert' does not contain a readable certificate") from None


def _load_client(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load the client certificate into *context*. OpenSSL reads only files, so write a private temporary one."""
    descriptor, path = tempfile.mkstemp(prefix="cdc-webhook-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate}\n{key}\n")
        context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError:
        raise ConfigError(
            "sink 'webhook': options 'client_cert' and 'client_key' must contain a certificate and its unencrypted key"
        ) from None
    finally:
        os.unlink(path)


def _no_password() -> str:
    """Prevent OpenSSL from asking for a password on the terminal."""
    return ""


def _pem(name: str, value: str) -> str:
    """Return the PEM text in *value*. A plus sign that was not encoded in a URI arrives as a space."""
    if "-----BEGIN" in value:
        return value
    try:
        text = base64.b64decode(value.strip().replace(" ", "+"), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    if "-----BEGIN" not in text:
        raise ConfigError(
            f"sink 'webhook': option '{name}' is neither PEM text nor base64-encoded PEM. To read a file, write"
            " ${file:/path}"
        )
    return text
