"""Where a schema registry is and how to get in: what the option `confluent_schema_registry` says."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from cdc_core.errors import OptionError
from cdc_core.options import Duration, option, parse_options

__all__ = ["RegistryAddress"]

_OPTION = "confluent_schema_registry"
_EXAMPLE = "https://key:secret@host:443?timeout=30s"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameters:
    """What may stand behind the question mark."""

    timeout: Duration = option(Duration(30.0), doc="Longest wait for an answer.")
    ca_cert: str | None = option(None, doc="Certificate of the authority to trust, base64 of PEM.", secret=True)
    client_cert: str | None = option(None, doc="Certificate of the client, base64 of PEM.", secret=True)
    client_key: str | None = option(None, doc="Private key of the client, base64 of PEM.", secret=True)
    insecure_tls_skip_verify: bool = option(False, doc="Whether to trust any server.")

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise ValueError("'timeout' must be more than 0")
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("'client_cert' and 'client_key' go together; give both or none")
        if self.ca_cert and self.insecure_tls_skip_verify:
            raise ValueError("'ca_cert' has no use with 'insecure_tls_skip_verify'; give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """A registry's URL and credentials. Picklable and hashable; holds secrets, which neither `repr` nor `str` show.

    `str` is how messages name the registry: its URL without credentials and parameters. Certificates are PEM texts.
    """

    url: str
    user: str | None = dataclasses.field(default=None, repr=False)
    password: str | None = dataclasses.field(default=None, repr=False)
    timeout_s: float = 30.0
    ca_cert: str | None = dataclasses.field(default=None, repr=False)
    client_cert: str | None = dataclasses.field(default=None, repr=False)
    client_key: str | None = dataclasses.field(default=None, repr=False)
    insecure_tls_skip_verify: bool = False

    def __str__(self) -> str:
        return self.url

    @classmethod
    def parse(cls, text: str, *, owner: str) -> RegistryAddress:
        """Return the address that the option says: `https://key:secret@host:443?timeout=30s&ca_cert=…`.

        User and password are percent-encoded. Raises: OptionError naming *owner* ("encoder 'avro'"), option and remedy;
        it shows no secret.
        """
        where = f"{owner}: option '{_OPTION}'"
        parts = urlsplit("")
        host = port = None
        with suppress(ValueError):
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        if parts.scheme not in ("http", "https") or not host or "@" in parts.path + parts.query + parts.fragment:
            raise OptionError(f"{where} must be a URL such as {_EXAMPLE}, with user and password percent-encoded")
        if parts.fragment:
            raise OptionError(f"{where} must not have a '#'; write %23 where it belongs to a value")
        user, password = parts.username, parts.password
        if user is not None and ":" in unquote(user):
            raise OptionError(f"{where}: the user must not contain a colon, which the registry could not tell apart")
        given = _given(parts.query, where)
        parameters = parse_options(_Parameters, given, owner=where)
        secure = ("ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify")
        if parts.scheme == "http" and any(getattr(parameters, name) for name in secure):
            names = ", ".join(name for name in secure if name in given)
            raise OptionError(f"{where} gives {names}, which only https:// has a use for")
        shown_host = f"[{host}]" if ":" in host else host
        return cls(
            url=f"{parts.scheme}://{shown_host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}",
            user=None if user is None else unquote(user),
            password=None if user is None else unquote(password or ""),
            timeout_s=float(parameters.timeout),
            ca_cert=_pem(parameters.ca_cert, "ca_cert", where),
            client_cert=_pem(parameters.client_cert, "client_cert", where),
            client_key=_pem(parameters.client_key, "client_key", where),
            insecure_tls_skip_verify=parameters.insecure_tls_skip_verify,
        )


def _given(query: str, where: str) -> dict[str, str]:
    """Return the parameters by name; an empty one counts as not given."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise OptionError(f"{where} gives the parameter '{name}' twice; keep one of them")
        given[name] = value
    for name in given.keys() - {field.name for field in dataclasses.fields(_Parameters)}:
        # the value stays, for the complaint about the name
        given[name] = given[name] or " "
    return {name: value for name, value in given.items() if value}


def _pem(value: str | None, name: Literal["ca_cert", "client_cert", "client_key"], where: str) -> str | None:
    if value is None:
        return None
    try:
        # a plus sign that was not percent-encoded arrives as a blank
        pem = base64.b64decode(value.replace(" ", "+"), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        pem = ""
    if "-----BEGIN " not in pem:
        raise OptionError(f"{where}: '{name}' must be the base64 of a PEM text, as `base64 -w0 FILE` writes it")
    return pem
