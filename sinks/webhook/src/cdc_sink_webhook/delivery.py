"""One request until it is taken or refused: attempts, waits between them, and the search for bad rows."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from cdc_core.errors import CdcError, RetryableSinkError, TerminalSinkError
from cdc_sink_webhook.answers import Answer, Meaning
from cdc_sink_webhook.client import Client, UnansweredError
from cdc_sink_webhook.repeats import Repeats
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.sink_config import RetryConfig

__all__ = ["Delivered", "Delivery"]

logger = logging.getLogger(__name__)

_LONGEST_BACKOFF_S = 30.0
_SHORTEST_BACKOFF_S = 0.01
_JITTER = 0.2
_FOR_ALL = (429, 503)
"""Statuses that ask for patience with all requests."""
_LONGEST_PATIENCE_S = 60.0
"""An endpoint that asks for a longer wait gets it from the engine, which says so."""


@dataclass(slots=True)
class Delivered:
    """What became of requests: `failures` are the numbers of refused rows with reasons, all others are there."""

    messages: int = 0
    nbytes: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Delivered) -> None:
        """Count *other* in."""
        self.messages += other.messages
        self.nbytes += other.nbytes
        self.failures += other.failures


class Delivery:
    """Delivers requests by a client, each until it is known what became of it. Lives in the client's event loop."""

    def __init__(
        self,
        client: Client,
        retry: RetryConfig,
        *,
        halves: Callable[[Request], tuple[Request, Request]],
        endpoint: str,
        repeats: Repeats,
    ) -> None:
        """Take the *client*, and what makes two requests of one; errors name the *endpoint*, *repeats* hears of all."""
        self._client = client
        self._most_repeats = retry.limit
        self._backoff_s = max(float(retry.Backoff), _SHORTEST_BACKOFF_S)
        self._halves = halves
        self._endpoint = endpoint
        self._repeats = repeats
        self._resume_at = 0.0

    async def deliver(self, request: Request) -> Delivered:
        """Return what became of *request*. Its keys must be nowhere else until then.

        Raises: RetryableSinkError when it was repeated often enough; TerminalSinkError when repeating does not help.
        """
        try:
            answer = await self._answered(request)
        finally:
            self._repeats.forget(request)
        if answer.meaning is Meaning.DELIVERED:
            return Delivered(messages=len(request.places), nbytes=len(request.body))
        if len(request.places) == 0:
            raise TerminalSinkError(
                f"{self._endpoint} refuses a resolved mark with {answer}: it must take objects with the member"
                ' "resolved", or the changefeed be without the option resolved'
            )
        if len(request.places) == 1:
            return Delivered(failures=[(int(request.places[0]), str(answer))])
        delivered = Delivered()
        for half in self._halves(request):  # one after the other: they may share a key
            delivered.add(await self.deliver(half))
        return delivered

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def _answered(self, request: Request) -> Answer:
        """Return the answer that says what became of *request*, after as many attempts as the options allow."""
        repeats, spared = 0, False
        while True:
            await self._patience()
            answer: Answer | None = None
            try:
                answer = await self._client.post(request)
            except UnansweredError as error:
                if error.dropped and not spared:  # endpoints close connections that they have seen enough of
                    spared = True
                    continue
                failure = str(error)
            else:
                if answer.meaning in (Meaning.DELIVERED, Meaning.REFUSED):
                    return answer
                failure = f"it answers {answer}"
            asked_s = 0.0 if answer is None else answer.retry_after_s or 0.0
            last, long = repeats == self._most_repeats, asked_s > _LONGEST_PATIENCE_S
            if answer is not None and answer.meaning is Meaning.CONFLICT and last and not long:
                return answer
            if last or long or (answer is not None and answer.meaning is Meaning.GONE):
                raise self._given_up(failure, answer, repeats=repeats, long=long)
            wait_s = max(self._wait_s(repeats), asked_s)
            repeats += 1
            logger.info("%s: %s; attempt %d follows in %.1f s", self._endpoint, failure, repeats + 1, wait_s)
            self._repeats.note(request, self._refusal(failure, attempts=repeats), wait_s)
            if answer is not None and answer.status in _FOR_ALL:
                self._resume_at = max(self._resume_at, _now() + wait_s)
            await asyncio.sleep(wait_s)

    async def _patience(self) -> None:
        """Return when the endpoint wants requests again."""
        while (wait_s := self._resume_at - _now()) > 0:
            await asyncio.sleep(wait_s * random.uniform(1.0, 1.0 + _JITTER))

    def _wait_s(self, repeats: int) -> float:
        doubled = self._backoff_s * 2.0 ** min(repeats, 60)
        return min(doubled, _LONGEST_BACKOFF_S) * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)

    def _given_up(self, failure: str, answer: Answer | None, *, repeats: int, long: bool) -> CdcError:
        if answer is not None and answer.meaning is Meaning.GONE:
            return TerminalSinkError(f"{self._endpoint} wants no more requests: {failure}; choose another endpoint")
        what = self._refusal(failure, attempts=repeats + 1)
        if answer is None or answer.meaning is Meaning.BUSY or long:  # who says when to come again expects us
            return RetryableSinkError(what, retry_after_s=None if answer is None else answer.retry_after_s)
        return TerminalSinkError(f"{what}; {answer.remedy}")

    def _refusal(self, failure: str, *, attempts: int) -> str:
        times = f"{attempts} times" if attempts > 1 else "once"
        return f"{self._endpoint} takes no request, tried {times}: {failure}"


def _now() -> float:
    return asyncio.get_running_loop().time()
