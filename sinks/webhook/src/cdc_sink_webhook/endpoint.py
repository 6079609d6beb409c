"""The endpoint: host, path, query and login."""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from cdc_core import ConfigError
from cdc_sink_webhook.options import WebhookOptions

_PATH = re.compile(r"[!-~]*")
_LONG_SEGMENT = 16
"""A path segment of at least this length may be a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A parsed URL. Path and query of a webhook are often secret, so `str` and `repr` show only the host."""

    tls: bool
    host: str
    port: int
    target: str = field(repr=False)
    """Path and query, as in the request line."""
    authorization: str | None = field(default=None, repr=False)
    """Value of the header `Authorization`, if an option or the user of the URL asks for one."""

    @classmethod
    def of(cls, uri: str, options: WebhookOptions) -> Endpoint:
        """Parse the sink URI, `webhook-https://host/path`. Raises: ConfigError."""
        scheme = uri.partition("://")[0]
        tls = scheme == "webhook-https"
        try:
            parts = urlsplit(uri.removeprefix("webhook-"))
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _invalid("has no valid host and port", scheme) from None
        if not host or port == 0 or not re.fullmatch(r"[^\s%/]+", host):
            raise _invalid("has no host", scheme)
        try:
            if ":" not in host:  # an IPv6 address has no labels
                host.encode("idna")  # connecting does this as well, even for ASCII hosts
        except UnicodeError:
            raise _invalid(f"has the invalid host '{host}'", scheme) from None
        if parts.fragment:
            raise _invalid("contains '#', which starts a fragment and is never sent. Encode it as %23", scheme)
        if not _PATH.fullmatch(parts.path):
            raise _invalid("has a path with spaces or non-ASCII characters. Percent-encode them", scheme)
        if not tls and not options.insecure_allow_http and not _is_loopback(host):
            raise ConfigError(
                f"sink 'webhook': webhook-http:// to '{host}' would send rows and secrets unencrypted. Use"
                " webhook-https://, or set insecure_allow_http=true"
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
    def ascii_host(self) -> str:
        """The host in ASCII, as DNS knows it."""
        return self.host if self.host.isascii() else self.host.encode("idna").decode("ascii")

    @property
    def authority(self) -> str:
        """Value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.ascii_host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    def secrets(self) -> frozenset[str]:
        """Return the parts of a request that an answer may echo and nobody may see: path, query and login."""
        path, _, query = self.target.partition("?")
        found = {self.target, path, unquote(path), *(value for _, value in parse_qsl(query))}
        found.update(segment for segment in path.split("/") if len(segment) >= _LONG_SEGMENT)
        found.update([text.removeprefix("/") for text in found])
        found.update([text.replace("/", r"\/") for text in found])  # as some JSON writers escape it
        if self.authorization is not None:
            found |= {self.authorization, self.authorization.rpartition(" ")[2]}
        return frozenset(found - {"", "/", r"\/"})

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def _invalid(problem: str, scheme: str) -> ConfigError:
    return ConfigError(f"sink 'webhook': the URI {problem}. Write {scheme}://host:port/path")


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
            "sink 'webhook': the URI has a user, and an option sets the header Authorization. Keep one of them"
        )
    login = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"
