"""What stands in front of the code that takes a webhook's rows: is the request genuine, and is it new?

Nothing but the standard library. Call `open_request` with the headers, by names in lower case, and the body as it came,
before anything parses it.
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
    """Return the rows of a request, or its resolved mark as a text; None for a request that was *done* already.

    Remember `headers["webhook-id"]` in *done* together with the rows, in one transaction. Raises: PermissionError for a
    request that nobody who knows one of *secrets* has signed, or that is too old.
    """
    identity, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(timestamp)) > _TOLERANCE_S:
        raise PermissionError("the request is too old, or a clock is wrong")
    content = f"{identity}.{timestamp}.".encode() + body
    right = [_signature(secret, content) for secret in secrets]
    given = headers["webhook-signature"].split()
    if not any(hmac.compare_digest(one, other) for one in given for other in right):
        raise PermissionError("no signature of the request is right")
    if identity in done:
        return None
    content = json.loads(body)
    return content["resolved"] if "resolved" in content else content["payload"]


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
