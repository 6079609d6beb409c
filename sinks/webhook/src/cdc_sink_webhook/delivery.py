"""Delivers one request: attempts, waits between them, and the search for refused rows."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from cdc_core import CdcError, RefusedRow, RetryableSinkError, TerminalSinkError
from cdc_sink_webhook.answers import Answer, Meaning
from cdc_sink_webhook.client import Client, NoAnswerError
from cdc_sink_webhook.event_headers import LARGE_HEADERS, MAX_HEADERS
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.retries import PendingRetries
from cdc_sink_webhook.sink_config import RetryConfig

logger = logging.getLogger(__name__)

_MAX_BACKOFF_S = 30.0
_MIN_BACKOFF_S = 0.01
_JITTER = 0.2
_SLOW_DOWN = (429, 503)
"""After these statuses all requests wait, not only the one that was answered."""
_HEADERS_TOO_LARGE = 431
_MAX_WAIT_S = 60.0
"""When the endpoint asks for a longer wait, the engine waits instead, and shows it."""
MAX_JITTERED_WAIT_S = _MAX_WAIT_S * (1.0 + _JITTER)
"""Before a request or a retry."""


@dataclass(slots=True)
class Delivered:
    """The outcome of requests: `refused` are the rows that the endpoint refuses; it has accepted all others."""

    messages: int = 0
    nbytes: int = 0
    refused: list[RefusedRow] = field(default_factory=list)

    def add(self, other: Delivered) -> None:
        """Add *other* to this outcome."""
        self.messages += other.messages
        self.nbytes += other.nbytes
        self.refused += other.refused


class Delivery:
    """Delivers requests through a client, each until its outcome is known. Lives in the client's event loop."""

    def __init__(
        self,
        client: Client,
        retry: RetryConfig,
        *,
        halves: Callable[[Request], tuple[Request, Request]],
        endpoint: str,
        pending: PendingRetries,
    ) -> None:
        """*halves* splits a request; *endpoint* is its name in errors; *pending* records every retry."""
        self._client = client
        self._max_retries = retry.limit
        self._backoff_s = max(float(retry.Backoff), _MIN_BACKOFF_S)
        self._halves = halves
        self._endpoint = endpoint
        self._pending = pending
        self._resume_at = 0.0

    async def deliver(self, request: Request) -> Delivered:
        """Return the outcome of *request*. No other request with one of its keys may be in flight meanwhile.

        Raises: RetryableSinkError when all retries have failed; TerminalSinkError when an immediate retry cannot help.
        """
        if request.header_bytes > MAX_HEADERS and len(request.row_numbers):
            return Delivered(refused=[RefusedRow(index=int(request.row_numbers[0]), reason=_too_long(request))])
        try:
            answer = await self._answer(request)
        finally:
            self._pending.remove(request)
        rows = len(request.row_numbers)
        if answer.meaning is Meaning.DELIVERED:
            for row in request.traced.values():
                row.acknowledged(request=request.id, status=answer.status)
            return Delivered(messages=rows, nbytes=len(request.body))
        if rows == 0:
            raise TerminalSinkError(
                f"{self._endpoint} refuses a resolved mark: response {answer}. The endpoint must accept objects with"
                " the"
                ' member "resolved"; otherwise remove the option resolved'
            )
        if rows == 1:
            return Delivered(refused=[RefusedRow(index=int(request.row_numbers[0]), reason=str(answer))])
        delivered = Delivered()
        for half in self._halves(request):  # one after the other: both may have rows of the same key
            delivered.add(await self.deliver(half))
        return delivered

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def _answer(self, request: Request) -> Answer:
        """Return the final answer to *request*, after as many attempts as the options allow."""
        retries, dropped_before, unanswered = 0, False, False
        while True:
            await self._wait_to_resume()
            answer: Answer | None = None
            try:
                answer = await self._client.post(request, again=unanswered)
            except NoAnswerError as error:
                failure, unanswered = str(error), unanswered or retries > 0 or not error.ended
                if error.refused:
                    raise TerminalSinkError(
                        f"{self._failed(failure, attempts=retries + 1)}. Check the certificate of the endpoint, and"
                        " ca_cert, client_cert and client_key",
                        repairable=True,
                    ) from None
                if error.dropped and not dropped_before:  # servers close connections that have served long
                    dropped_before = True
                    continue
            else:
                about_row = answer.status == _HEADERS_TOO_LARGE and request.header_bytes > LARGE_HEADERS
                if answer.meaning in (Meaning.DELIVERED, Meaning.REFUSED) or about_row:
                    return answer
                failure = f"response {answer}"
            asked_s = 0.0 if answer is None else answer.retry_after_s or 0.0
            last, too_long = retries == self._max_retries, asked_s > _MAX_WAIT_S
            if answer is not None and answer.meaning is Meaning.CONFLICT and last and not too_long:
                return answer
            at_once = answer is not None and (
                answer.meaning is Meaning.GONE
                or (answer.meaning is Meaning.MISCONFIGURED and answer.retry_after_s is None)
            )
            if last or too_long or at_once:
                raise self._error(failure, answer, attempts=retries + 1, too_long=too_long)
            wait_s = max(self._backoff(retries), asked_s)
            retries += 1
            logger.info("%s: %s; attempt %d in %.1f s", self._endpoint, failure, retries + 1, wait_s)
            self._pending.add(request, self._failed(failure, attempts=retries), wait_s)
            if answer is not None and answer.status in _SLOW_DOWN:
                self._resume_at = max(self._resume_at, _now() + wait_s)
            await asyncio.sleep(wait_s)

    async def _wait_to_resume(self) -> None:
        """Return when the endpoint accepts requests again."""
        while (wait_s := self._resume_at - _now()) > 0:
            await asyncio.sleep(wait_s * random.uniform(1.0, 1.0 + _JITTER))

    def _backoff(self, retries: int) -> float:
        doubled = self._backoff_s * 2.0 ** min(retries, 60)
        return min(doubled, _MAX_BACKOFF_S) * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)

    def _error(self, failure: str, answer: Answer | None, *, attempts: int, too_long: bool) -> CdcError:
        if answer is not None and answer.meaning is Meaning.GONE:
            return TerminalSinkError(f"{self._endpoint} accepts no more requests: {failure}. Choose another endpoint")
        text = self._failed(failure, attempts=attempts)
        if answer is None or answer.meaning is Meaning.BUSY or too_long:  # a long Retry-After asks for a retry
            return RetryableSinkError(text, retry_after_s=None if answer is None else answer.retry_after_s)
        return TerminalSinkError(f"{text}. {answer.remedy}", repairable=answer.repairable)

    def _failed(self, failure: str, *, attempts: int) -> str:
        times = f" {attempts} times" if attempts > 1 else ""
        return f"request to {self._endpoint} failed{times}: {failure}"


def _too_long(request: Request) -> str:
    return (
        f"the attributes of its event have {request.header_bytes} bytes, and headers may have {MAX_HEADERS}; set"
        " cloudevents_mode = 'structured'"
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
