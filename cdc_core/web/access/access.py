"""What one server knows about access."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from starlette.requests import Request

from cdc_core.errors import ConfigError
from cdc_core.web.access.callers import Callers
from cdc_core.web.access.origins import Origins
from cdc_core.web.access.rate_limit import RateLimit
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.access.tls import TlsFiles
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Endpoint, Refusal, Role

_V6_NETWORK = 64
"""Bits of an IPv6 address that one client cannot choose."""


class Access:
    """Who may ask the server at *address* what.

    Without `tokens` everybody who can connect may do everything, so it must listen on loopback only.
    Raises: ConfigError when others could connect without proof or without TLS, or when a file cannot be used.
    """

    def __init__(self, address: Address, settings: AccessSettings) -> None:
        self.address, self.settings = address, settings
        if not address.is_loopback and settings.tokens is None:
            raise ConfigError(
                f"--listen {address}: other hosts can connect there without proving who they are; add --tokens"
                " FILE with tokens that `cdc token` makes, or listen at 127.0.0.1"
            )
        if not address.is_loopback and settings.tls_cert is None and not settings.trusted_network:
            raise ConfigError(
                f"--listen {address}: other hosts can connect there, and tokens would travel unencrypted; add"
                " --tls-cert FILE and --tls-key FILE, or --trusted-network if something else encrypts the way"
            )
        self.callers = None if settings.tokens is None else Callers(Path(settings.tokens))
        self.tls = None if settings.tls_cert is None else TlsFiles(settings)
        self.rate = RateLimit(settings.max_rate, 2 * settings.max_rate)
        self.origins = Origins(
            address=address, scheme="http" if self.tls is None else "https", public=settings.public_url
        )

    def allow(self, request: Request, endpoint: Endpoint) -> None:
        """Return when the caller of *request* may use *endpoint*. Raises: Refusal."""
        role: Role = request.state.role
        if role >= endpoint.role:
            if endpoint.costly:
                self._require_own_page(request)
            return
        if request.state.user is None:
            if not request.state.callers_are_known:
                raise Refusal(503, "the file of tokens cannot be read at present; the server's log says why")
            what = "the token or certificate is not known here" if request.state.wrong_proof else "a token is missing"
            raise Refusal(401, f"{what}; send Authorization: Bearer TOKEN")
        raise Refusal(
            403,
            f"'{request.state.user}' has the role {role.name.lower()}, and this takes the role"
            f" {endpoint.role.name.lower()}",
        )

    def _require_own_page(self, request: Request) -> None:
        host, origin, site = (request.headers.get(name) for name in ("host", "origin", "sec-fetch-site"))
        if not self.origins.allows_change(host=host or "", origin=origin, site=site):
            raise Refusal(403, "a page of another site asks for this, and it starts work here; open it from this one")

    @staticmethod
    def client_of(client: tuple[str, int] | None) -> str:
        """Return what counts as one client: an address, or the network of an IPv6 address."""
        if client is None:
            return "unknown"
        try:
            address = ipaddress.ip_address(client[0])
        except ValueError:
            return client[0]
        if isinstance(address, ipaddress.IPv6Address):
            if address.ipv4_mapped is not None:
                return str(address.ipv4_mapped)
            return str(ipaddress.ip_network((address, _V6_NETWORK), strict=False))
        return str(address)
