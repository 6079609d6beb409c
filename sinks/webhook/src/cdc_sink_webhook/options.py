"""Options of the webhook sink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc_core import MB, ByteSize, Duration, option
from cdc_sink_webhook.sink_config import SinkConfig

_PEM = "as PEM text or base64-encoded PEM"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")
_OWN_HEADERS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """Options of the changefeed or parameters of the sink URI, for requests and the endpoint."""

    webhook_sink_config: dict[str, Any] = option(
        None, doc="Settings for batches and retries. The sink's README lists the keys."
    )
    webhook_auth_header: str | None = option(
        None, doc="Value of the `Authorization` header of every request, for example `Bearer …`.", secret=True
    )
    webhook_client_timeout: Duration = option(
        Duration(3.0),
        doc="Time limit for a request, from its first byte to the end of the response. The same limit applies to"
        " connecting.",
    )
    compression: Literal["none", "gzip", "zstd"] = option(
        "none",
        doc="Compression of request bodies. The endpoint must accept this `Content-Encoding`. Cannot be combined with"
        " `webhook_signing_secret`, because libraries for Standard Webhooks verify uncompressed bodies.",
    )
    extra_headers: dict[str, Any] = option(
        None,
        doc='Headers to add to every request, for example `{"X-Api-Key": "…"}`. Their values are never shown.',
        secret=True,
    )
    webhook_query: str | None = option(
        None,
        doc="Query string of the endpoint's URL, without the `?`, for example `code=…`. Parameters in the sink URI are"
        " options and are not sent.",
        secret=True,
    )
    webhook_signing_secret: str | None = option(
        None,
        doc="Secret for signing requests according to Standard Webhooks: `whsec_` followed by base64. With several"
        " secrets, separated by spaces, every request carries one signature per secret, so that a secret can be"
        " replaced without interruption.",
        secret=True,
    )
    parallel_requests: int = option(
        16,
        doc="Maximum number of requests that each writer sends in parallel. Two parallel requests never contain rows"
        " with the same key.",
    )
    buffer_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="How much memory each writer may use for unacknowledged requests. At this limit, the writer stops reading"
        " from the source until requests are acknowledged.",
    )
    ca_cert: str | None = option(None, doc=f"CA certificates to trust, {_PEM}. Default: the system's CA certificates.")
    client_cert: str | None = option(None, doc=f"Client certificate, {_PEM}. Requires `client_key`.")
    client_key: str | None = option(
        None, doc=f"Unencrypted private key of the client certificate, {_PEM}.", secret=True
    )
    insecure_tls_skip_verify: bool = option(False, doc="Accept any certificate. For tests only.")
    insecure_allow_http: bool = option(
        False, doc="Allow `webhook-http://` URIs to other machines. Rows and secrets are then sent unencrypted."
    )

    def __post_init__(self) -> None:
        if self.webhook_client_timeout <= 0:
            raise ValueError("option 'webhook_client_timeout' must be more than 0")
        if not 1 <= self.parallel_requests <= 1000:
            raise ValueError("option 'parallel_requests' must be from 1 to 1000")
        if self.buffer_size < 64 * 1024:
            raise ValueError("option 'buffer_size' must be at least 64KB")
        if self.webhook_auth_header is not None and not _VISIBLE.fullmatch(self.webhook_auth_header):
            raise ValueError("option 'webhook_auth_header' must be one line of visible ASCII characters")
        if self.webhook_query is not None and not re.fullmatch(r'[!"$-~]+', self.webhook_query.removeprefix("?")):
            raise ValueError("option 'webhook_query' must be percent-encoded as in a URL: name=value&name=value")
        if self.webhook_signing_secret is not None and self.compression != "none":
            raise ValueError(
                "options 'webhook_signing_secret' and 'compression' cannot be used together, because libraries for "
                "Standard Webhooks verify uncompressed bodies; remove one of them"
            )
        _check_headers(self.extra_headers or {}, authorized=self.webhook_auth_header is not None)
        SinkConfig.of(self.webhook_sink_config)


def _check_headers(headers: Mapping[str, Any], *, authorized: bool) -> None:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"option 'extra_headers': {name!r} is not a valid header name")
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"option 'extra_headers' must not contain '{name}', which the sink sets itself")
        if authorized and name.lower() == "authorization":
            raise ValueError(
                "options 'webhook_auth_header' and 'extra_headers' both set 'Authorization'. Keep one of them"
            )
        if not isinstance(value, str):
            raise ValueError(f"option 'extra_headers': the value of '{name}' is not a string. Put it in quotes")
        if not _VISIBLE.fullmatch(value):
            raise ValueError(
                f"option 'extra_headers': the value of '{name}' must be one line of visible ASCII characters"
            )
    names = [name.lower() for name in headers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"option 'extra_headers' contains '{twice}' twice, in different case. Keep one of them")
