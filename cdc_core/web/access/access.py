"""What one server knows about access: who may ask it, from which pages, and how often."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request

from cdc_core.errors import ConfigError
from cdc_core.web.access.callers import Callers
from cdc_core.web.access.settings import AccessSettings
from cdc_core.web.access.tls import TlsFiles
from cdc_core.web.address import Address
from cdc_core.web.endpoint import Endpoint, Refusal, Role

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """The origins of one server: where it listens, and *public* URLs of proxies in front of it."""

    address: Address
    scheme: str
    public: Sequence[str] = ()

    def answers_to(self, host: str) -> bool:
        """Return whether a request with this header Host may be served. See `Address.answers_to`."""
        return self._is_public(host) or self.address.answers_to(host)

    def allows_change(self, *, host: str, origin: str | None, site: str | None) -> bool:
        """Return whether a request that changes something may come from the page at *origin*.

        *site* is the header Sec-Fetch-Site. Programs send neither; browsers send at least one, from any page.
        """
        if site is not None and site not in ("same-origin", "none"):
            return False
        if origin is None:
            return True
        allowed = set(map(_origin, self.public))
        if not self._is_public(host):
            allowed.add(_origin(f"{self.scheme}://{host}"))
        found = _origin(origin)
        return found is not None and found in allowed

    def is_secure(self, host: str) -> bool:
        """Return whether a browser that sent this *host* reaches the server by HTTPS."""
        return self.scheme == "https" or any(
            url.startswith("https:") and _origin(url) == _origin(f"https://{host}") for url in self.public
        )

    def _is_public(self, host: str) -> bool:
        return any(_origin(url) == _origin(f"{urlsplit(url).scheme}://{host}") for url in self.public)


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url.lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or "@" in parts.netloc:
        return None
    return (parts.scheme, parts.hostname, port or _PORTS[parts.scheme])


_MAX_CLIENTS = 10_000


class RateLimit:
    """A token bucket for each client: *rate* requests a second, and *burst* at once. Safe with several threads.

    Only the clients that asked last are remembered, so that many addresses take no more memory than 10,000.
    """

    def __init__(self, rate: float, burst: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._now = rate, max(1.0, burst), now
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> int:
        """Return 0 when *client* may ask now, otherwise after how many whole seconds it may."""
        with self._lock:
            now = self._now()
            left, at = self._buckets.pop(client, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._rate)
            granted = left >= 1.0
            self._buckets[client] = (left - granted, now)
            if len(self._buckets) > _MAX_CLIENTS:
                self._buckets.popitem(last=False)
            return 0 if granted else max(1, math.ceil((1.0 - left) / self._rate))


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
                f"--listen {address}: other hosts can connect there without authentication; add --tokens FILE with "
                "tokens that `cdc token` creates, or listen at 127.0.0.1"
            )
        if not address.is_loopback and settings.tls_cert is None and not settings.trusted_network:
            raise ConfigError(
                f"--listen {address}: other hosts can connect there, and tokens would travel unencrypted; add"
                " --tls-cert FILE and --tls-key FILE, or --trusted-network if something else encrypts the connections"
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
                raise Refusal(503, "the token file cannot be read; the server's log says why")
            what = "unknown token or certificate" if request.state.wrong_proof else "a token is missing"
            raise Refusal(401, f"{what}; send Authorization: Bearer TOKEN")
        raise Refusal(
            403,
            f"'{request.state.user}' has the role {role.name.lower()}, but this request requires the role"
            f" {endpoint.role.name.lower()}",
        )

    def _require_own_page(self, request: Request) -> None:
        host, origin, site = (request.headers.get(name) for name in ("host", "origin", "sec-fetch-site"))
        if not self.origins.allows_change(host=host or "", origin=origin, site=site):
            raise Refusal(
                403,
                "cross-site request refused, because it starts work on this server; open it from a page of this site",
            )

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
