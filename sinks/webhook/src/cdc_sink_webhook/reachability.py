"""Checks that an endpoint can be reached, without sending a request."""

from __future__ import annotations

import socket
import ssl
from functools import partial

from cdc_core import ConfigError
from cdc_sink_webhook.endpoint import Endpoint

_repairable = partial(ConfigError, repairable=True)
"""Nothing here is wrong with an endpoint that accepted rows before."""

_LIMIT_S = 5.0
_REFUSAL_LIMIT_S = 0.5


def check_reachable(endpoint: Endpoint, context: ssl.SSLContext | None, *, client_cert: bool) -> None:
    """Return when *endpoint* accepts connections and both sides accept each other's certificates. Raises: ConfigError.

    *client_cert* says whether the client has a certificate.

    No HTTP is sent, because no request is guaranteed to have no effect at somebody else's endpoint: OPTIONS and HEAD
    are counted and logged, can fail where POST succeeds, and reach code that treats every request as an event. Wrong
    paths and missing permissions therefore show with the first rows.
    """
    try:
        with socket.create_connection((endpoint.ascii_host, endpoint.port), timeout=_LIMIT_S) as connection:
            if context is not None:
                context.set_alpn_protocols(["h2", "http/1.1"])
                with context.wrap_socket(connection, server_hostname=endpoint.ascii_host) as secured:
                    if not _stays_open(secured):
                        raise _repairable(
                            f"{endpoint} closes the connection after the TLS handshake; it probably requires a client"
                            f" certificate. Set {_other(client_cert)}client_cert and client_key"
                        )
    except ssl.SSLCertVerificationError as error:
        raise _repairable(
            f"the certificate of {endpoint} is not trusted ({error.verify_message.rstrip('.')}). Set ca_cert, or"
            " correct the host of the sink URI"
        ) from error
    except ssl.SSLError as error:
        raise _repairable(
            f"the TLS handshake with {endpoint} failed ({_reason(error)}). {_remedy(error, client_cert=client_cert)}"
        ) from error
    except socket.gaierror as error:
        raise _repairable(f"the host of {endpoint} has no address. Correct the sink URI") from error
    except TimeoutError as error:
        raise _repairable(
            f"{endpoint} did not answer within {_LIMIT_S:g} s. Correct the sink URI, or start the endpoint"
        ) from error
    except OSError as error:
        raise _repairable(
            f"cannot connect to {endpoint} ({error.strerror or error}). Correct the sink URI, or start the endpoint"
        ) from error


def _stays_open(connection: ssl.SSLSocket) -> bool:
    """Return whether the other side keeps the connection: TLS 1.3 refuses our certificate only after the handshake."""
    connection.settimeout(_REFUSAL_LIMIT_S)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True  # an HTTP/1.1 endpoint waits for a request


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _remedy(error: ssl.SSLError, *, client_cert: bool) -> str:
    reason = _reason(error)
    if "certificate" in reason or "handshake failure" in reason or "unknown ca" in reason:
        return f"Set {_other(client_cert)}client_cert and client_key"
    if "wrong version number" in reason or "http request" in reason:
        return "Correct the port of the sink URI: the server there does not speak TLS"
    return "Correct the sink URI"


def _other(client_cert: bool) -> str:
    return "another " if client_cert else ""
