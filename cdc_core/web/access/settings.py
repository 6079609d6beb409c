"""What the operator of a server decides about access."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from cdc_core.options import ByteSize, Duration, option


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """The options of `cdc serve`, and of `cdc node --listen`, about access. Parsed by `parse_options`."""

    tokens: str | None = option(
        None,
        doc="File of tokens and their roles, written by `cdc token`. Changes to the file take effect at once.",
    )
    tls_cert: str | None = option(None, doc="Server certificate with its chain, as a PEM file.")
    tls_key: str | None = option(None, doc="Private key of the server certificate, as an unencrypted PEM file.")
    tls_client_ca: str | None = option(
        None, doc="PEM file of the certificate authorities whose client certificates are accepted instead of a token."
    )
    public_url: tuple[str, ...] = option(
        (),
        doc="Comma-separated URLs at which a reverse proxy exposes this server, such as https://cdc.example.",
    )
    trusted_proxy: tuple[str, ...] = option(
        (),
        doc="Comma-separated addresses or networks of reverse proxies whose `X-Forwarded-For` header is trusted.",
    )
    trusted_network: bool = option(
        False, doc="Allow other hosts to connect without TLS, because something else encrypts their connections."
    )
    allowed_paths: tuple[str, ...] = option(
        (),
        doc="Comma-separated directories. In definitions that arrive in requests, `${file:PATH}` may refer only to"
        " files in these directories. Default: none.",
    )
    max_body: ByteSize = option(ByteSize(1024 * 1024), doc="Maximum size of a request body.")
    max_rate: float = option(
        50.0, doc="Maximum number of requests per second from one client. A burst may contain twice as many."
    )
    max_connections: int = option(256, doc="Maximum number of connections. One address may use at most half of them.")
    request_timeout: Duration = option(
        Duration(10.0), doc="How long a client may take to send a request's headers, and how long to send its body."
    )

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("'tls_cert' and 'tls_key' must be set together; set both")
        if self.tls_client_ca is not None and (self.tls_cert is None or self.tokens is None):
            raise ValueError(
                "'tls_client_ca' needs 'tls_cert' and 'tls_key', and 'tokens' with the roles of the certificates"
            )
        for url in self.public_url:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
                raise ValueError(
                    f"'public_url' has {url}, which is not a URL like https://cdc.example; write the scheme and the"
                    " host"
                )
        for proxy in self.trusted_proxy:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise ValueError(
                    f"'trusted_proxy' has {proxy}, which is neither an address nor a network such as 10.1.2.0/24"
                ) from None
        for path in self.allowed_paths:
            if not os.path.isabs(path):
                raise ValueError(f"'allowed_paths' has {path}, which is a relative path; write the absolute path")
        for name in ("max_body", "max_rate", "max_connections", "request_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"'{name}' must be above zero")
