"""Which names a server answers to, and from which pages it takes changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from cdc_core.web.address import Address

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
