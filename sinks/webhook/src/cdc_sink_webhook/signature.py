"""Signatures by which an endpoint knows who sent a request, and when."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from cdc_core.errors import ConfigError

__all__ = ["Signer"]

_PREFIX = "whsec_"
_LEAST, _MOST = 24, 64


class Signer:
    """Signs as Standard Webhooks 1.0.0 says, github.com/standard-webhooks/standard-webhooks/spec/standard-webhooks.md.

    What is signed is `{webhook-id}.{webhook-timestamp}.{body}`, the body as it is sent. The timestamp is that of the
    attempt, in seconds; the id stays the same through all attempts. A signature is `v1,` and the base64 of the
    HMAC-SHA256. A secret is `whsec_` and the base64 of 24 to 64 random bytes. With several secrets, the header holds
    a signature by each, separated by blanks, and a receiver takes any that it can verify: that is how secrets change.
    """

    def __init__(self, secrets: str) -> None:
        """Take *secrets*, separated by blanks. Raises: ConfigError, which shows none of them."""
        self._keys = [_key_of(secret) for secret in secrets.split()]
        if not self._keys:
            raise ConfigError("sink 'webhook': the option 'webhook_signing_secret' is empty; leave it out")

    def headers(self, message_id: str, body: bytes, *, now: float) -> dict[str, str]:
        """Return the headers of an attempt to send *body* that begins at *now*, in seconds since 1970."""
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
    if not secret.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise ConfigError(
            "sink 'webhook': the option 'webhook_signing_secret' holds something else than whsec_ and the base64 of"
            f" {_LEAST} to {_MOST} bytes; make one by: echo whsec_$(openssl rand -base64 32)"
        )
    return key
