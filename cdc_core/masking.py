"""Masking: keeps secrets out of everything that people or other programs can see."""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote

MASK = "***"

_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|credential|signature|auth(orization)?(_header)?$|^sig$"
    r"|cookie|conn(ection)?[._-]?str(ing)?(?![a-z])|(?<![a-z])sas(?![a-z])"
    r"|(access|account|api|client|encryption|mask|private|shared)[._-]?key(?![._-]?id)|ssl[._-]key"
    r"|(?<![a-z])(db|pg|user)?(pass|pw)(?![a-z]|[._-](file|location|path))",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(
    r"(authorization\W{1,6}(?:b\W)?(?:api-?key|api-?token|basic|bearer|geniekey|negotiate|sharedkey|splunk|token) +)"
    r"(?![$<])(?=[^\s'\"\\,;]*(?:[\d+/=_-]|\.\w|(?-i:[a-z][A-Z]))|[^\s'\"\\,;]{24})[^\s'\"\\,;]{8,}",
    re.IGNORECASE,
)
"""The header with its value, as servers and proxies repeat it in an answer: a login is encoded there, unlike a word."""
_HOSTS = re.compile(r"|(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?(,(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?)*")
"""Hosts with ports, as they may follow `://`."""
_SOURCES_OF_SECRETS = frozenset({"implicit", "specified"})
_STANDARD = str.maketrans("-_ ", "+/+")
"""From the URL-safe alphabet of base64 to the standard one; in the query of a URI, a `+` means a space."""
_SHORT = 4
"""A shorter secret is replaced only as a whole word, or the password 'a' would make texts unreadable."""
_IN_NAMES = frozenset({"postgres", "postgresql"})
"""Passwords of many test servers that are replaced only as whole words, because names such as PostgreSQL have them.

Schemes of URIs and names with hyphens have them too.
"""


def is_secret_name(name: str) -> bool:
    """Return whether a parameter or option of this name probably holds a secret."""
    return _SECRET_NAME.search(name) is not None


def says_where_secrets_are(name: str, value: object) -> bool:
    """Return whether a parameter or option is CockroachDB's AUTH with one of its values, which are not secret."""
    return name.casefold() == "auth" and isinstance(value, str) and value in _SOURCES_OF_SECRETS


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with all *secrets* replaced by `***`, in upper or lower case, the longest ones first.

    So is the value of a header `Authorization` of the usual schemes, unless it looks like a word or a placeholder.
    """
    text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
    folded = text.casefold()
    for secret in sorted(set(secrets), key=len, reverse=True):
        if secret.casefold() in _IN_NAMES:
            text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-]|://)", MASK, text, flags=re.IGNORECASE)
        elif len(secret) >= _SHORT:
            if secret.casefold() in folded:  # identifiers of SQL are folded
                text = re.sub(re.escape(secret), MASK, text, flags=re.IGNORECASE)
        elif secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def masked_uri(uri: str, *, secret_path: bool = False) -> str:
    """Return *uri* with its password and the values of secret-looking parameters replaced by `***`.

    With *secret_path* its user and path are replaced too.
    """
    before, password, after = _split_password(uri)
    if secret_path:
        scheme, separator, login = before.partition("://")
        authority, slash, path = f"{'' if password else login}{after}".partition("?")[0].partition("/")
        return scheme + separator + authority.rpartition("@")[2] + slash + (MASK if path else "")
    head = before + (MASK if password else "")
    path, question, query = after.partition("?")
    parameters = [_masked_parameter(parameter) for parameter in query.split("&")] if question else []
    return head + path + question + "&".join(parameters)


def uri_secrets(uri: str) -> frozenset[str]:
    """Return the secrets in *uri*, its password and secret-looking parameters, as written and decoded."""
    _, password, after = _split_password(uri)
    found = {password, unquote(password)}
    query = after.partition("?")[2]
    for parameter in query.split("&"):
        name, _, raw = parameter.partition("=")
        if is_secret_name(unquote(name)) and not says_where_secrets_are(unquote(name), raw):
            found.add(raw)
            found.update(value for _, value in parse_qsl(parameter))
    return frozenset(found - {""})


def secrets_of_uris(value: Any) -> frozenset[str]:
    """Return the secrets of all URIs in *value*, also in nested tables and lists."""
    if isinstance(value, str):
        return uri_secrets(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return frozenset().union(*map(secrets_of_uris, inner))


_MIN_SECRET = 1000


def secret_texts(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts and numbers, as texts, under secret-looking names, in nested tables too.

    A small number is left out: it is not a secret, and masking it everywhere would spoil other texts.
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from secret_texts(value)
        elif not is_secret_name(name) or isinstance(value, bool):
            continue
        elif isinstance(value, str) and value and not says_where_secrets_are(name, value):
            yield value
        elif isinstance(value, int | float) and abs(value) >= _MIN_SECRET:
            yield str(value)


def has_unencoded_password(uri: str) -> bool:
    """Return whether *uri* can only be read as one whose password has an unencoded `/`, `?`, `#` or `@`."""
    _, password, _ = _split_password(uri)
    return re.search(r"[/?#@]", password) is not None


def secret_forms(secrets: Iterable[str]) -> frozenset[str]:
    """Return *secrets* in every form in which texts may contain them: plain, in URIs, in Python literals and in JSON.

    For a secret with several lines or spaces, this includes each line alone, and the whole secret in one line. Of a
    text in base64, in which some options take secrets, the text is secret too, and of `user:password` the password.
    """
    forms: set[str] = set()
    known = frozenset(secrets)
    for secret in known.union(*map(_from_base64, known)):
        forms |= {line for line in map(str.strip, secret.splitlines()) if len(line) >= _SHORT}
        forms.add(" ".join(secret.split()))
        forms |= {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
        forms |= {repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return frozenset(forms - {""})


class MaskingFilter(logging.Filter):
    """Masks whole log records: message, arguments, exception and causes. Add it to handlers, not to loggers."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = frozenset(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Mask *secrets* as well from now on."""
        self._secrets |= frozenset(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = mask(record.getMessage(), self._secrets), ()
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            record.exc_info = None
        if record.exc_text:
            record.exc_text = mask(record.exc_text, self._secrets)
        if record.stack_info:
            record.stack_info = mask(record.stack_info, self._secrets)
        return True


def _split_password(uri: str) -> tuple[str, str, str]:
    """Return the part before the password, the password as written, and the part after it."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri, "", ""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, password = authority.rpartition("@")[0].partition(":")
    if colon:
        return f"{scheme}://{user}:", password, rest[len(user) + 1 + len(password) :]
    if "@" in rest and "@" not in authority and not _HOSTS.fullmatch(authority):
        # a password with an unencoded '/', '?' or '#': the URI is invalid, but the password must not be shown
        user = authority.partition(":")[0]
        password = rest[len(user) + 1 :].rpartition("@")[0]
        return f"{scheme}://{user}:", password, rest[len(user) + 1 + len(password) :]
    return f"{scheme}://{authority}", "", rest[len(authority) :]


def _from_base64(secret: str) -> tuple[str, ...]:
    """Return the text of *secret* in base64, of either alphabet and in one or more lines, and the password in it."""
    encoded = "".join(secret.strip().removeprefix("Basic ").translate(_STANDARD).split())
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return ()
    return (text, text.partition(":")[2]) if len(text) >= _SHORT else ()


def _masked_parameter(parameter: str) -> str:
    written, equals, value = parameter.partition("=")
    name = unquote(written)
    secret = value and is_secret_name(name) and not says_where_secrets_are(name, value)
    return written + equals + (MASK if secret else value)
