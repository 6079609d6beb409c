"""The address and credentials of a schema registry: the value of the option `confluent_schema_registry`."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from cdc_core import Duration, OptionError, option, parse_options

_OPTION = "confluent_schema_registry"
_EXAMPLE = "https://key:secret@host:443?timeout=30s"
_BETWEEN_REPLICAS = re.compile(r"\s*,\s*(?=https?://)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameters:
    """Parameters of the URL."""

    timeout: Duration = option(Duration(30.0), doc="Maximum time to wait for a response.")
    ca_cert: str | None = option(None, doc="CA certificate to trust, as base64-encoded PEM.", secret=True)
    client_cert: str | None = option(None, doc="Client certificate, as base64-encoded PEM.", secret=True)
    client_key: str | None = option(
        None, doc="Private key of the client certificate, as base64-encoded PEM.", secret=True
    )
    insecure_tls_skip_verify: bool = option(False, doc="Accept any server certificate.")

    def __post_init__(self) -> None:
        if self.timeout <= 0:
            raise ValueError("'timeout' must be greater than 0")
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("'client_cert' and 'client_key' must be set together")
        if self.ca_cert and self.insecure_tls_skip_verify:
            raise ValueError("'ca_cert' cannot be combined with 'insecure_tls_skip_verify'; remove one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """A registry's URL and credentials. Picklable and hashable. `repr` and `str` show no secret.

    `url` has several URLs, separated by commas, when the registry has replicas: each request goes to the first one that
    responds. `str` is it, without credentials and parameters, for messages. Certificates are PEM texts.
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
        """Return the address in *text*, the value of the option: `https://key:secret@host:443?timeout=30s&ca_cert=…`.

        Of several URLs, separated by commas, the first one has the user and password, and the last one the parameters.
        User and password are percent-encoded. Raises: OptionError, which names *owner* ("encoder 'avro'"), option and
        remedy, and shows no secret.
        """
        where = f"{owner}: option '{_OPTION}'"
        replicas = [_replica(each, where) for each in _BETWEEN_REPLICAS.split(text)]
        first, last = replicas[0], replicas[-1]
        if any("@" in each.netloc for each in replicas[1:]) or any(each.query for each in replicas[:-1]):
            raise OptionError(f"{where}: write the user and password in the first URL only, and parameters in the last")
        user = first.username
        if user is not None and ":" in unquote(user):
            raise OptionError(f"{where}: the user must not contain a colon, which separates user and password")
        given = _given(last.query, where)
        parameters = parse_options(_Parameters, given, owner=where)
        secure = ("ca_cert", "client_cert", "client_key", "insecure_tls_skip_verify")
        if any(each.scheme == "http" for each in replicas) and any(getattr(parameters, name) for name in secure):
            names = ", ".join(name for name in secure if name in given)
            raise OptionError(f"{where}: {names} can only be used with https://; change the scheme or omit them")
        hosts = (each.netloc.rpartition("@")[2] for each in replicas)
        return cls(
            url=",".join(
                f"{each.scheme}://{host}{each.path.rstrip('/')}" for each, host in zip(replicas, hosts, strict=True)
            ),
            user=None if user is None else unquote(user),
            password=None if user is None else unquote(first.password or ""),
            timeout_s=float(parameters.timeout),
            ca_cert=_pem(parameters.ca_cert, "ca_cert", where),
            client_cert=_pem(parameters.client_cert, "client_cert", where),
            client_key=_pem(parameters.client_key, "client_key", where),
            insecure_tls_skip_verify=parameters.insecure_tls_skip_verify,
        )


def _replica(text: str, where: str) -> SplitResult:
    """Return the parts of one URL. Raises: OptionError."""
    parts, usable = urlsplit(""), False
    with suppress(ValueError):
        parts = urlsplit(text)
        usable = parts.port != 0 and parts.scheme in ("http", "https")
    others = parts.path + parts.query + parts.fragment
    if not usable or not parts.hostname or "," in parts.hostname or "@" in others:
        raise OptionError(f"{where} must be a URL such as {_EXAMPLE}, with user and password percent-encoded")
    if parts.fragment:
        raise OptionError(f"{where} must not contain '#'; write %23 in a value")
    return parts


def _given(query: str, where: str) -> dict[str, str]:
    """Return the parameters by name, without those that are empty."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise OptionError(f"{where} has parameter '{name}' twice; remove one of them")
        given[name] = value
    for name in given.keys() - {field.name for field in dataclasses.fields(_Parameters)}:
        # Not empty, so that `parse_options` refuses the unknown name.
        given[name] = given[name] or " "
    return {name: value for name, value in given.items() if value}


def _pem(value: str | None, name: Literal["ca_cert", "client_cert", "client_key"], where: str) -> str | None:
    if value is None:
        return None
    try:
        # A plus sign that was not percent-encoded arrives as a blank.
        pem = base64.b64decode(value.replace(" ", "+"), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        pem = ""
    if "-----BEGIN " not in pem:
        raise OptionError(f"{where}: '{name}' must be PEM text in base64, such as the output of `base64 -w0 FILE`")
    return pem
