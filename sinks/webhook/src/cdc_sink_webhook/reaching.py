"""Whether an endpoint can be reached, found out without a request."""

from __future__ import annotations

import socket
import ssl

from cdc_core.errors import ConfigError
from cdc_sink_webhook.endpoint import Endpoint

__all__ = ["reach"]

_LIMIT_S = 5.0
_REFUSAL_LIMIT_S = 0.5


def reach(endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
    """Return when *endpoint* takes connections, and both sides accept each other's certificates. Raises: ConfigError.

    Not a byte of HTTP is sent. There is no request without an effect at a stranger's endpoint: OPTIONS and HEAD are
    counted and logged, may fail where POST goes well, and reach code that takes every request for an event. So rights
    and paths are found out by the first rows.
    """
    try:
        with socket.create_connection((endpoint.host_name, endpoint.port), timeout=_LIMIT_S) as connection:
            if context is not None:
                context.set_alpn_protocols(["h2", "http/1.1"])
                with context.wrap_socket(connection, server_hostname=endpoint.host_name) as secured:
                    _await_refusal(secured)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"the certificate of {endpoint} is not to be trusted ({error.verify_message.rstrip('.')}): give ca_cert, or"
            " correct the host of the sink's URI"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(f"{endpoint} makes no TLS connection ({_reason(error)}){_remedy(error)}") from error
    except socket.gaierror as error:
        raise ConfigError(f"the host of {endpoint} has no address: correct the sink's URI") from error
    except TimeoutError as error:
        raise ConfigError(
            f"{endpoint} does not answer in {_LIMIT_S:g} s: correct the sink's URI, or start what should be there"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{endpoint} takes no connections ({error.strerror or error}): correct the sink's URI, or"
            " start what should be there"
        ) from error


def _await_refusal(connection: ssl.SSLSocket) -> None:
    """Return unless the other side refuses our certificate: with TLS 1.3 it says so only after the handshake."""
    connection.settimeout(_REFUSAL_LIMIT_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return  # an endpoint of HTTP/1.1 waits for a request


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _remedy(error: ssl.SSLError) -> str:
    reason = _reason(error)
    if "certificate required" in reason or "handshake failure" in reason:
        return ": give client_cert and client_key"
    if "certificate" in reason or "unknown ca" in reason:
        return ": give another client_cert and client_key"
    if "wrong version number" in reason or "http request" in reason:
        return ": correct the port of the sink's URI, where something else than TLS is spoken"
    return ": correct the sink's URI"
