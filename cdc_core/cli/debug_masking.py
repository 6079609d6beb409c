"""Masking for texts that leave the host: secrets that are known, and what looks like one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cdc_core.config.interpolation import reference_values
from cdc_core.masking import MASK, is_secret_name, mask, secret_forms, uri_secrets

_MIN_LENGTH = 4
"""A shorter value of a variable is no secret that could be told from other text."""
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_LOGIN = re.compile(r"(://[^\s/?#:@\"']*:)(?:([^\s\"']+)(?=@)|[^\s\"']++)")
"""A password ends at the last `@`. Without one, all up to the next space is taken, so as not to be searched again."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>(?:\w+ )*PRIVATE KEY)-----"
    r"(?:(?:[^-]|-(?!----))*+-----END (?P=kind)-----|(?:[\w+/=:,\s\\]|-(?!-))*+)"
    r"|(?<![\w+/=\s])[\w+/=\s]++-----END (?:\w+ )*PRIVATE KEY-----"
)
"""A private key as PEM, also when the text lacks its end or its beginning."""
_NAME = re.compile(r"""(?<![\w.-])(?:([\w.-]++)\\*["']?\s*[:=]\s*|(--[\w.-]++)\\*["']?[\s,]++(?!-))""")
_VALUE = re.compile(
    r"""\$\{[^{}]*\}|(?:(?:Basic|Bearer|Token|ApiKey)\s+)?"""
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?P<quote>\\+["']).*?(?P=quote)|[^\s"'\\&;]*[^\s"'\\&;,{}\[\]()])""",
    re.IGNORECASE,
)
"""A name and its value: `name=value`, `"name": "value"`, `name='value'`, `--name value`, and the same inside of another
quoted text. A bare value may have commas and brackets; those at its end may belong to what is around it, and stay."""
_SCHEMED = re.compile(r"\b(Basic|Bearer)\s+[A-Za-z0-9+/._~=-]{6,}", re.IGNORECASE)


def masked_text(text: str, secrets: Iterable[str]) -> str:
    """Return *text* without *secrets*, passwords in URIs, private keys, and values under secret-looking names.

    References such as `${PASSWORD}`, numbers below 1000, and the words true, false, null and none stay.
    """
    text = _PRIVATE_KEY.sub(MASK, mask(text, secrets))
    text = _LOGIN.sub(_without_password, text)
    text = _SCHEMED.sub(lambda found: f"{found[1]} {MASK}", text)
    return "".join(_without_assigned(text))


def referred_secrets(definition: Any) -> frozenset[str]:
    """Return, in every form, what the references in *definition* stand for: each may be a secret."""
    values = reference_values(definition, environ=os.environ)
    return secret_forms({value for value in values if len(value) >= _MIN_LENGTH}.union(*map(uri_secrets, values)))


def environment_secrets(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return, in every form, the values of variables whose names look secret, and the secrets in URIs."""
    found: set[str] = set()
    for name, value in environ.items():
        if len(value) >= _MIN_LENGTH and is_secret_name(name):
            found.add(value)
        found |= uri_secrets(value) if "://" in value else set()
    return secret_forms(found)


def _without_password(login: re.Match[str]) -> str:
    return login[0] if login[2] is None or _REFERENCE.fullmatch(login[2]) else login[1] + MASK


def _without_assigned(text: str) -> Iterator[str]:
    """Yield the pieces of *text*, with the mask in place of values under secret-looking names."""
    done = 0
    for name in _NAME.finditer(text):
        value = _VALUE.match(text, name.end()) if name.start() >= done and is_secret_name(name[1] or name[2]) else None
        if value is None or _is_harmless(value[0].strip("\\\"'")):
            continue
        quote = re.match(r"\\*[\"']|", value[0])
        edge = "" if quote is None else quote[0]
        yield f"{text[done : value.start()]}{edge}{MASK}{edge}"
        done = value.end()
    yield text[done:]


def _is_harmless(value: str) -> bool:
    if not value or _REFERENCE.fullmatch(value) or value == MASK:
        return True
    return value.lower() in ("true", "false", "null", "none") or (value.isdigit() and int(value) < 1000)
