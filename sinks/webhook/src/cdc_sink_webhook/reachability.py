"""Whether an endpoint can be reached, found out without a request."""

from __future__ import annotations

import socket
import ssl

from cdc_core.errors import ConfigError
from cdc_sink_webhook.endpoint import Endpoint

__all__ = ["reach"]

_LIMIT_S = 5.0
_REFUSAL_LIMIT_S = 0.5


def reach(endpoint: Endpoint, context: ssl.SSLContext | None, *, given: bool) -> None:
    """Return when *endpoint* takes connections, and both sides accept each other's certificates. Raises: ConfigError.

    *given* tells whether the client has a certificate.

    Not a byte of HTTP is sent. There is no request without an effect at a stranger's endpoint: OPTIONS and HEAD are
    counted and logged, may fail where POST goes well, and reach code that takes every request for an event. So rights
    and paths are found out by the first rows.
    """
    try:
        with socket.create_connection((endpoint.host_name, endpoint.port), timeout=_LIMIT_S) as connection:
            if context is not None:
                context.set_alpn_protocols(["h2", "http/1.1"])
                with context.wrap_socket(connection, server_hostname=endpoint.host_name) as secured:
                    if not _stays(secured):
                        raise ConfigError(
                            f"{endpoint} ends the connection after the TLS handshake, as who wants a certificate of its"
                            f" clients does: give {_client(given)}client_cert and client_key"
                        )
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"the certificate of {endpoint} is not to be trusted ({error.verify_message.rstrip('.')}): give ca_cert, or"
            " correct the host of the sink's URI"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(
            f"{endpoint} makes no TLS connection ({_reason(error)}){_remedy(error, given=given)}"
        ) from error
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


def _stays(connection: ssl.SSLSocket) -> bool:
    """Return whether the other side goes on: with TLS 1.3 it refuses our certificate only after the handshake."""
    connection.settimeout(_REFUSAL_LIMIT_S)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True  # an endpoint of HTTP/1.1 waits for a request


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _remedy(error: ssl.SSLError, *, given: bool) -> str:
    reason = _reason(error)
    if "certificate" in reason or "handshake failure" in reason or "unknown ca" in reason:
        return f": give {_client(given)}client_cert and client_key"
    if "wrong version number" in reason or "http request" in reason:
        return ": correct the port of the sink's URI, where something else than TLS is spoken"
    return ": correct the sink's URI"


def _client(given: bool) -> str:
    return "another " if given else ""
