"""Where requests go."""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from cdc_core.errors import ConfigError
from cdc_sink_webhook.options import WebhookOptions

__all__ = ["Endpoint"]

_PATH = re.compile(r"[!-~]*")
_LONG_SEGMENT = 16
"""From this length a segment of a path may well be a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An URL taken apart. Paths and queries of webhooks are often secrets: `str` and `repr` show the host only."""

    tls: bool
    host: str
    port: int
    target: str = field(repr=False)
    """Path and query, as in the first line of a request."""
    authorization: str | None = field(default=None, repr=False)
    """The header `Authorization`, when options or the URL's user ask for one."""

    @classmethod
    def of(cls, uri: str, options: WebhookOptions) -> Endpoint:
        """Read the sink's *uri*, `webhook-https://host/path`. Raises: ConfigError."""
        scheme = uri.partition("://")[0]
        tls = scheme == "webhook-https"
        try:
            parts = urlsplit(uri.removeprefix("webhook-"))
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _wrong("has no valid host and port", scheme) from None
        if not host or port == 0 or not re.fullmatch(r"[^\s%/]+", host):
            raise _wrong("names no host", scheme)
        try:
            if ":" not in host:  # an address of version 6 has no labels
                host.encode("idna")  # whoever connects does so, also with a host of ASCII
        except UnicodeError:
            raise _wrong(f"names the host '{host}', which cannot be one", scheme) from None
        if parts.fragment:
            raise _wrong("has a '#', and what follows it is never sent; encode it as %23", scheme)
        if not _PATH.fullmatch(parts.path):
            raise _wrong("has a path with blanks or characters outside ASCII; encode them", scheme)
        if not tls and not options.insecure_allow_http and not _is_loopback(host):
            raise ConfigError(
                f"sink 'webhook' sends to '{host}' by webhook-https only, because webhook-http shows rows and secrets"
                " to everybody on the way: change the URI, or set insecure_allow_http=true"
            )
        query = "" if not options.webhook_query else "?" + options.webhook_query.removeprefix("?")
        return cls(
            tls=tls,
            host=host,
            port=port or (443 if tls else 80),
            target=(parts.path or "/") + query,
            authorization=_authorization(parts.username, parts.password, options),
        )

    @property
    def host_name(self) -> str:
        """The host as the network knows it."""
        return self.host if self.host.isascii() else self.host.encode("idna").decode("ascii")

    @property
    def authority(self) -> str:
        """What the header `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host_name
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def secrets(self) -> frozenset[str]:
        """Return what an answer may repeat of a request and nobody should see: path, query and login."""
        path, _, query = self.target.partition("?")
        found = {self.target, path, unquote(path), *(value for _, value in parse_qsl(query))}
        found.update(segment for segment in path.split("/") if len(segment) >= _LONG_SEGMENT)
        found.update([text.removeprefix("/") for text in found])
        found.update([text.replace("/", r"\/") for text in found])  # as some write JSON
        if self.authorization is not None:
            found |= {self.authorization, self.authorization.rpartition(" ")[2]}
        return frozenset(found - {"", "/", r"\/"})

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def _wrong(what: str, scheme: str) -> ConfigError:
    return ConfigError(f"the URI of sink 'webhook' {what}; write {scheme}://host:port/path")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authorization(user: str | None, password: str | None, options: WebhookOptions) -> str | None:
    if user is None:
        return options.webhook_auth_header
    if options.webhook_auth_header is not None or "authorization" in map(str.lower, options.extra_headers or {}):
        raise ConfigError(
            "sink 'webhook' is given a user in its URI and an Authorization header by an option; keep one of them"
        )
    login = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"
