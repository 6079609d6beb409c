from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from cdc_sink_webhook.signature import Signer

from cdc_core import ConfigError

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 25))).decode()


def signature(secret: str, content: bytes) -> str:
    """Return the signature, computed literally as in the specification."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()


def test_id_timestamp_and_body_are_signed() -> None:
    headers = Signer(SECRET).headers("msg", b'{"a":1}', now=1_700_000_000.9)
    assert headers == {
        "webhook-id": "msg",
        "webhook-timestamp": "1700000000",
        "webhook-signature": signature(SECRET, b'msg.1700000000.{"a":1}'),
    }


def test_the_test_vector_of_the_specification() -> None:
    """The libraries of the specification share this test vector."""
    signer = Signer("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', now=1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_secret_gives_one_signature() -> None:
    found = Signer(f" {SECRET}  {OTHER}\n").headers("msg", b"body", now=5)["webhook-signature"]
    assert found == f"{signature(SECRET, b'msg.5.body')} {signature(OTHER, b'msg.5.body')}"


@pytest.mark.parametrize(
    "secret",
    ["", "  ", "hush", base64.b64encode(bytes(32)).decode(), "whsec_", "whsec_hush", "whsec_aHVzaA==", f"{SECRET} x"],
)
def test_an_invalid_secret_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ConfigError, match="webhook_signing_secret") as raised:
        Signer(secret)
    assert "hush" not in str(raised.value)
    assert "aHVzaA" not in str(raised.value)
