"""A receiver of webhook requests: verifies the signature and recognizes repeated requests.

Uses only the standard library. Call `open_request` with the headers, by lowercase name, and the raw body, before
anything parses it.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Collection, Mapping
from typing import Any

_TOLERANCE_S = 300


def open_request(headers: Mapping[str, str], body: bytes, *, secrets: Collection[str], done: Collection[str]) -> Any:
    """Return the rows of a request, its resolved mark as text, or None for a request that is in *done*.

    Add `headers["webhook-id"]` to *done* in the same transaction that stores the rows. Raises: PermissionError when no
    signature matches one of *secrets*, or when the request is too old.
    """
    request_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(timestamp)) > _TOLERANCE_S:
        raise PermissionError("the request is too old, or a clock is wrong")
    signed = f"{request_id}.{timestamp}.".encode() + body
    valid = [_signature(secret, signed) for secret in secrets]
    received = headers["webhook-signature"].split()
    if not any(hmac.compare_digest(one, other) for one in received for other in valid):
        raise PermissionError("the request has no valid signature")
    if request_id in done:
        return None
    content = json.loads(body)
    return content["resolved"] if "resolved" in content else content["payload"]


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
