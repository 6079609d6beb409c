"""What of a statement may be shown in an error: it may hold secrets, and which ones is not known yet."""

from __future__ import annotations

import re

from cdc_core.masking import is_secret_name, uri_secrets

__all__ = ["holds_secret", "without_secrets"]

_URI = re.compile(r"(?<=://)[^\s'\"`]+")
_WHOLE_URI = re.compile(r"[\w+.-]+://[^\s'\"`]+")
_VALUE = re.compile(r"""(?P<name>[\w.]+)(?P<mark>"?\s*=\s*')(?P<value>(?:[^']|'')*)""")


def without_secrets(text: str) -> str:
    """Return *text* with asterisks in place of what follows `://` and of the values of secret-looking options.

    It is as long as *text*, and its quotation marks are where they were.
    """
    text = _URI.sub(lambda found: _stars(found[0]), text)
    return _VALUE.sub(lambda found: found["name"] + found["mark"] + _value(found["name"], found["value"]), text)


def holds_secret(text: str) -> bool:
    """Return whether *text* may hold a secret that is no reference."""
    found = {secret for uri in _WHOLE_URI.findall(text) for secret in uri_secrets(uri)}
    found |= {value["value"] for value in _VALUE.finditer(text) if is_secret_name(value["name"])}
    return "webhook-" in text or any(not secret.startswith("${") for secret in found)


def _value(name: str, value: str) -> str:
    return _stars(value) if is_secret_name(name) else value


def _stars(text: str) -> str:
    return re.sub(r"[^\s'\"`]", "*", text)
