"""What the answer of an endpoint means for the rows in the request."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum


class Meaning(Enum):
    """What an answer means. Each meaning is handled in its own way."""

    DELIVERED = "the endpoint has accepted the rows"
    BUSY = "the endpoint may accept the same request later"
    CONFLICT = (
        "the endpoint may be processing the same request already; if it keeps sending this response, it refuses"
        " the rows"
    )
    MISCONFIGURED = "the endpoint refuses every request until somebody changes a setting"
    GONE = "the endpoint accepts no more requests"
    REFUSED = "the endpoint refuses the content of at least one row"


_BUSY = frozenset({408, 425, 429})
_MISCONFIGURED = {
    401: "Check webhook_auth_header and extra_headers",
    402: "Check the account at the endpoint",
    403: "Check webhook_auth_header and extra_headers, and their permissions at the endpoint",
    404: "Check the path of the sink URI",
    405: "The endpoint must accept POST requests: check the path of the sink URI",
    406: "The endpoint must accept requests without the header Accept",
    407: "Check the proxy in front of the endpoint",
    411: "Check the proxy in front of the endpoint",
    414: "Shorten the path of the sink URI or webhook_query",
    415: "The endpoint must accept the Content-Type and, with the option compression, the Content-Encoding",
    417: "Check the proxy in front of the endpoint",
    421: "Check the host of the sink URI",
    426: "Check which protocol the endpoint requires",
    431: "Shorten extra_headers or webhook_auth_header",
    451: "The endpoint refuses the content for legal reasons: choose another endpoint",
    511: "The network requires a login",
}
_IN_THE_CHANGEFEED = frozenset({301, 308, 414, 431, 451})
"""Misconfigured for good: only the options of the changefeed can be changed."""
_OF_NGINX = {
    "No required SSL certificate was sent": "Set client_cert and client_key",
    "The SSL certificate error": "Check client_cert and client_key",
    "The plain HTTP request was sent to HTTPS port": "Write webhook-https:// in the sink URI",
}
"""The titles of pages with which nginx answers 400 to every request, whatever its body is."""
_PAGE_OF_NGINX = re.compile(rf"<html> <head><title>400 ({'|'.join(_OF_NGINX)})</title>")
_MAX_WAIT_S = 3600.0
_REDIRECTED = "Redirects are not followed: put the final URL into the sink URI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer. `text` is the beginning of its body as one line, without secrets."""

    status: int
    text: str = ""
    retry_after_s: float | None = None

    @property
    def meaning(self) -> Meaning:
        """What the status means."""
        if 200 <= self.status < 300:
            return Meaning.DELIVERED
        if self.status in _MISCONFIGURED or self.status < 400 or self._title_of_nginx:
            return Meaning.MISCONFIGURED
        if self.status in _BUSY or self.status >= 500:
            return Meaning.BUSY
        if self.status == 409:
            return Meaning.CONFLICT
        return Meaning.GONE if self.status == 410 else Meaning.REFUSED

    @property
    def repairable(self) -> bool:
        """Whether somebody changes a setting at the endpoint, or in front of it, so that the same request succeeds."""
        return self.meaning is Meaning.MISCONFIGURED and self.status not in _IN_THE_CHANGEFEED

    @property
    def remedy(self) -> str:
        """What the user can do about this status; empty where there is no advice."""
        if self.status < 400:
            return _REDIRECTED
        return _OF_NGINX.get(self._title_of_nginx) or _MISCONFIGURED.get(self.status, "")

    @property
    def _title_of_nginx(self) -> str:
        page = _PAGE_OF_NGINX.match(self.text) if self.status == 400 else None
        return page[1] if page else ""

    def __str__(self) -> str:
        return f"{self.status}: {self.text}" if self.text else str(self.status)


def retry_after_s(value: str | None, date: str | None) -> float | None:
    """Return the wait in the header Retry-After: its seconds, or the time from the header Date to its date.

    At most one hour: a mistake of the endpoint must not stop a changefeed for days. None when the header is missing or
    malformed.
    """
    if value is None:
        return None
    if value.isascii() and value.strip().isdigit():
        return min(float(value), _MAX_WAIT_S)
    until = _seconds(value)
    if until is None:
        return None
    now = None if date is None else _seconds(date)
    return min(max(0.0, until - (time.time() if now is None else now)), _MAX_WAIT_S)


def _seconds(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
