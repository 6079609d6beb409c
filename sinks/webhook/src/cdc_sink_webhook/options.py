"""Options of the webhook sink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc_core.options import MB, ByteSize, Duration, option
from cdc_sink_webhook.sink_config import SinkConfig

__all__ = ["WebhookOptions"]

_PEM = "as base64 of PEM text, or as that text"
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
    """What a user may say about requests and the endpoint; as options or as parameters of the sink's URI."""

    webhook_sink_config: dict[str, Any] = option(None, doc="Batches and retries, see below.")
    webhook_auth_header: str | None = option(
        None, doc="The header `Authorization` of every request, as it is: `Bearer …`.", secret=True
    )
    webhook_client_timeout: Duration = option(
        Duration(3.0),
        doc="How long a request may take, from its first byte to the end of the answer; and as long its connection.",
    )
    compression: Literal["none", "gzip", "zstd"] = option(
        "none", doc="How bodies are compressed; the endpoint must take that `Content-Encoding`."
    )
    extra_headers: dict[str, Any] = option(
        None, doc='More headers of every request: `{"X-Api-Key": "…"}`. Their values never show.', secret=True
    )
    webhook_query: str | None = option(
        None,
        doc="What the endpoint's URL has after its `?`, such as `code=…`; parameters of the sink's URI are options.",
        secret=True,
    )
    webhook_signing_secret: str | None = option(
        None,
        doc="Sign requests as Standard Webhooks with this secret: `whsec_` and base64. Several, separated by blanks,"
        " give as many signatures, for a change of secrets without a gap.",
        secret=True,
    )
    parallel_requests: int = option(
        16, doc="Most requests at a time of each writer; two that share a row's key are never among them."
    )
    buffer_size: ByteSize = option(
        ByteSize(16 * MB),
        doc="Memory for requests of each writer that are not yet acknowledged; the source is read no faster than they"
        " leave.",
    )
    ca_cert: str | None = option(
        None, doc=f"Certificates of the authorities to trust, {_PEM}; by default those of the system."
    )
    client_cert: str | None = option(None, doc=f"The client's certificate, {_PEM}. Needs `client_key`.")
    client_key: str | None = option(None, doc=f"The client's key, unencrypted, {_PEM}.", secret=True)
    insecure_tls_skip_verify: bool = option(False, doc="Trust any certificate. For tests only.")
    insecure_allow_http: bool = option(
        False, doc="Let `webhook-http://` go to other machines, where everybody on the way can read rows and secrets."
    )

    def __post_init__(self) -> None:
        if self.webhook_client_timeout <= 0:
            raise ValueError("option 'webhook_client_timeout' must be more than 0")
        if not 1 <= self.parallel_requests <= 1000:
            raise ValueError("option 'parallel_requests' must be from 1 to 1000")
        if self.buffer_size < 64 * 1024:
            raise ValueError("option 'buffer_size' must be at least 64KB")
        if self.webhook_auth_header is not None and not _VISIBLE.fullmatch(self.webhook_auth_header):
            raise ValueError("option 'webhook_auth_header' may have visible ASCII characters only, in one line")
        if self.webhook_query is not None and not re.fullmatch(r'[!"$-~]+', self.webhook_query.removeprefix("?")):
            raise ValueError("option 'webhook_query' must be encoded as in a URL, name=value&name=value")
        _check_headers(self.extra_headers or {}, authorized=self.webhook_auth_header is not None)
        SinkConfig.of(self.webhook_sink_config)


def _check_headers(headers: Mapping[str, Any], *, authorized: bool) -> None:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"option 'extra_headers' has the name {name!r}, which no header can have")
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"option 'extra_headers' has '{name}', which the sink itself sets; leave it out")
        if authorized and name.lower() == "authorization":
            raise ValueError(
                "options 'webhook_auth_header' and 'extra_headers' both give 'Authorization'; keep one of them"
            )
        if not isinstance(value, str):
            raise ValueError(f"option 'extra_headers' has '{name}' with a value that is no text; put it into quotes")
        if not _VISIBLE.fullmatch(value):
            raise ValueError(
                f"option 'extra_headers' has '{name}' with a value that no header can have: only visible ASCII"
                " characters, in one line"
            )
    names = [name.lower() for name in headers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"option 'extra_headers' has '{twice}' twice, in upper and lower case; keep one of them")
