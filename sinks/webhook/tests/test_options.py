from __future__ import annotations

from typing import Any

import pytest
from cdc_sink_webhook.options import WebhookOptions

from cdc_core import OptionError, parse_options, secret_values


def parsed(values: dict[str, Any]) -> WebhookOptions:
    return parse_options(WebhookOptions, values, owner="sink 'webhook'")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"webhook_client_timeout": "0s"}, "'webhook_client_timeout' must be more than 0"),
        ({"parallel_requests": 0}, "'parallel_requests' must be from 1 to 1000"),
        ({"buffer_size": "1KB"}, "'buffer_size' must be at least 64KB"),
        ({"compression": "br"}, "must be one of none, gzip, zstd"),
        ({"webhook_auth_header": "Bearer a\r\nX: hush"}, "visible ASCII"),
        ({"webhook_query": "a b"}, "percent-encoded as in a URL"),
        ({"webhook_query": "a#hush"}, "percent-encoded as in a URL"),
        ({"extra_headers": '{"Keep-Alive": "1"}'}, "'Keep-Alive', which the sink sets itself"),
        ({"extra_headers": '{"a b": "c"}'}, "'a b' is not a valid header name"),
        ({"extra_headers": '{"a": 1}'}, "the value of 'a' is not a string"),
        ({"extra_headers": '{"a": "hush\\nb: c"}'}, "the value of 'a' must be one line of visible ASCII"),
        ({"extra_headers": '{"Content-Type": "text/plain"}'}, "'Content-Type', which the sink sets itself"),
        ({"extra_headers": '{"Webhook-Id": "1"}'}, "'Webhook-Id', which the sink sets itself"),
        ({"extra_headers": '{"X": "1", "x": "2"}'}, "'x' twice"),
        ({"extra_headers": '["a"]'}, "must be a table"),
        ({"webhook_signing_secret": "whsec_hush", "compression": "gzip"}, "verify uncompressed bodies; remove one"),
        ({"webhook_auth_header": "hush", "extra_headers": '{"Authorization": "hush"}'}, "Keep one of them"),
    ],
)
def test_invalid_options_are_refused_without_showing_secrets(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        parsed(values)
    assert sentence in str(raised.value)
    assert "hush" not in str(raised.value)


def test_every_secret_is_declared() -> None:
    options = parsed(
        {
            "webhook_auth_header": "Bearer c2VjcmV0",
            "extra_headers": '{"X-Api-Key": "a-key", "Cookie": "session=abc"}',
            "webhook_signing_secret": "whsec_MfKQ9r8 whsec_C2FVsBQ",
            "client_key": "LS0tLS1",
            "webhook_query": "code=xyz",
        }
    )
    secrets = set(secret_values(options))
    assert {"c2VjcmV0", "a-key", "session=abc", "whsec_MfKQ9r8", "whsec_C2FVsBQ", "LS0tLS1", "code=xyz"} <= secrets
    assert not [secret for secret in secrets if secret in repr(options)]
