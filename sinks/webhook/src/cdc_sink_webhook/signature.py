"""Signatures, by which an endpoint verifies who sent a request, and when."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from cdc_core import ConfigError

_PREFIX = "whsec_"
_MIN_BYTES, _MAX_BYTES = 24, 64


class Signer:
    """Signs requests according to Standard Webhooks 1.0.0.

    See github.com/standard-webhooks/standard-webhooks/spec/standard-webhooks.md. The signed content is
    `{webhook-id}.{webhook-timestamp}.{body}`, with the body in the form that is sent. The timestamp is the time of the
    attempt in seconds; the id is the same in all attempts. A signature is `v1,` and the base64 of the HMAC-SHA256. A
    secret is `whsec_` and the base64 of 24 to 64 random bytes. With several secrets the header holds one signature for
    each, separated by spaces. A receiver accepts any that it can verify, so that secrets can be changed one side at a
    time.
    """

    def __init__(self, secrets: str) -> None:
        """Take one or more *secrets*, separated by spaces. Raises: ConfigError, which does not show them."""
        self._keys = [_key_of(secret) for secret in secrets.split()]
        if not self._keys:
            raise ConfigError("sink 'webhook': option 'webhook_signing_secret' is empty. Remove it or set a secret")

    def headers(self, message_id: str, body: bytes, *, now: float) -> dict[str, str]:
        """Return the headers of an attempt to send *body* at time *now*, in seconds since 1970."""
        timestamp = str(int(now))
        head = f"{message_id}.{timestamp}.".encode()
        signatures = []
        for key in self._keys:
            digest = hmac.new(key, head, hashlib.sha256)
            digest.update(body)
            signatures.append("v1," + base64.b64encode(digest.digest()).decode())
        return {
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(signatures),
        }


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        raise ConfigError(
            "sink 'webhook': option 'webhook_signing_secret' must be whsec_ followed by the base64 of"
            f" {_MIN_BYTES} to {_MAX_BYTES} bytes. Create one with: echo whsec_$(openssl rand -base64 32)"
        )
    return key
