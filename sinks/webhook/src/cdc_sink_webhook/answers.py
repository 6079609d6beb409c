"""What an endpoint's answer means for the rows that were sent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum

__all__ = ["Answer", "Meaning", "retry_after_s"]


class Meaning(Enum):
    """What to do next."""

    DELIVERED = "the rows are there"
    BUSY = "the same request may be taken later"
    CONFLICT = "the request may be under way already; if that lasts, its rows are refused"
    MISCONFIGURED = "no request is taken as things are set up: repeat it, in case of a mishap, then stop"
    GONE = "the endpoint wants no more requests"
    REFUSED = "the endpoint does not take the rows for what they hold"


_BUSY = frozenset({408, 425, 429})
_MISCONFIGURED = {
    401: "check webhook_auth_header and extra_headers",
    402: "see to the account at the endpoint",
    403: "check webhook_auth_header and extra_headers, and the rights behind them",
    404: "check the path of the sink's URI",
    405: "the endpoint must take POST requests: check the path of the sink's URI",
    406: "the endpoint must be able to answer",
    407: "check the proxy in front of the endpoint",
    411: "check the proxy in front of the endpoint",
    414: "check the path of the sink's URI and webhook_query",
    415: "the endpoint must take the Content-Type and, with the option compression, the Content-Encoding",
    417: "check the proxy in front of the endpoint",
    421: "check the host of the sink's URI",
    426: "check the protocol that the endpoint asks for",
    431: "check extra_headers and webhook_auth_header",
    451: "the endpoint may not take what it is sent",
    511: "the network asks for a login",
}
_LONGEST_WAIT_S = 86_400.0
_REDIRECTED = "redirects are not followed: write the URL that it should be into the sink's URI"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that came whole. `text` is the beginning of its body, in one line, without secrets."""

    status: int
    text: str = ""
    retry_after_s: float | None = None

    @property
    def meaning(self) -> Meaning:
        """What the status says."""
        if 200 <= self.status < 300:
            return Meaning.DELIVERED
        if self.status in _MISCONFIGURED or self.status < 400:
            return Meaning.MISCONFIGURED
        if self.status in _BUSY or self.status >= 500:
            return Meaning.BUSY
        if self.status == 409:
            return Meaning.CONFLICT
        return Meaning.GONE if self.status == 410 else Meaning.REFUSED

    @property
    def remedy(self) -> str:
        """What a user may do about an endpoint that answers so; empty when there is nothing to say."""
        return _REDIRECTED if self.status < 400 else _MISCONFIGURED.get(self.status, "")

    def __str__(self) -> str:
        return f"{self.status}: {self.text}" if self.text else str(self.status)


def retry_after_s(value: str | None, date: str | None) -> float | None:
    """Return how long the header Retry-After asks to wait: its seconds, or how far its date is from the header Date.

    A day at most, so that a slip of the endpoint does not stop a changefeed for ever. None when it says nothing that
    can be read.
    """
    if value is None:
        return None
    if value.isascii() and value.strip().isdigit():
        return min(float(value), _LONGEST_WAIT_S)
    until = _seconds(value)
    if until is None:
        return None
    now = None if date is None else _seconds(date)
    return min(max(0.0, until - (time.time() if now is None else now)), _LONGEST_WAIT_S)


def _seconds(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
