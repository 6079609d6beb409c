"""The queue between a sink and the thread that sends its requests, bounded in memory."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from cdc_core import CdcError, TerminalSinkError
from cdc_sink_webhook.delivery import Delivered, Delivery
from cdc_sink_webhook.key_order import KeyOrder, QueuedRequest
from cdc_sink_webhook.request import Request
from cdc_sink_webhook.retries import PendingRetries, PendingRetry

logger = logging.getLogger(__name__)

_GROUP = 64
_CLOSE_LIMIT_S = 2.0


class Repeating(Protocol):
    """`SinkContext.repeating`."""

    def __call__(self, reason: str, /, *, next_attempt_s: float) -> AbstractContextManager[None]: ...


class Outbox:
    """Sends requests in parallel, but requests with a common key one after the other. Starts its own thread.

    When a request fails for good, no further request is sent and every call raises that error. While a call waits, the
    status of the changefeed shows the pending retry.
    """

    def __init__(
        self,
        connect: Callable[[PendingRetries], Delivery],
        *,
        parallel: int,
        max_bytes: int,
        repeating: Repeating,
    ) -> None:
        """*connect* makes the delivery, in the thread that sends. The queue holds at most *max_bytes* of requests."""
        self._connect = connect
        self._repeating = repeating
        self._parallel = parallel
        self._max_bytes = max_bytes
        self._low_bytes = max_bytes // 4 * 3
        self._changed = threading.Condition()
        self._held_bytes = 0
        self._unfinished = 0
        self._error: BaseException | None = None
        self._pending_retry: PendingRetry | None = None
        self._delivered = Delivered()
        self._order = KeyOrder()
        self._workers: list[asyncio.Task[None]] = []
        self._idle: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-webhook", daemon=True)
        self._thread.start()
        self._started.wait()

    def send(self, requests: Iterable[Request]) -> None:
        """Return when all *requests* are queued. Waits while the queue is full. Raises: the error of an earlier one."""
        group: list[Request] = []
        for request in requests:
            if not self._reserve_room(request, wait=not group):
                self._post(group)
                group = []
                self._reserve_room(request, wait=True)
            group.append(request)
            if len(group) == _GROUP:
                self._post(group)
                group = []
        self._post(group)

    def send_now(self, requests: Iterable[Request]) -> None:
        """Queue *requests* even if the queue is full. For the outbox's own thread, which must not wait.

        Raises: as `send`.
        """
        for request in requests:
            with self._changed:
                self._raise_error()
                self._reserve(request)
            self._post([request])

    def flush(self) -> Delivered:
        """Wait until every request since the last flush is finished and return the outcome. Raises: as `send`."""
        with self._changed:
            self._wait_for(lambda: not self._unfinished)
            delivered, self._delivered = self._delivered, Delivered()
        return delivered

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call *action* in the outbox's thread after *seconds*, unless it is closed by then. It must not wait.

        There is one timer: while a call is pending, further ones are ignored.
        """
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._set_timer, loop, seconds, action)

    def close(self) -> None:
        """Cancel all requests and close the connections. Does not wait long."""
        with self._changed:
            self._error = self._error or TerminalSinkError("the webhook sink is closed")
            loop, self._loop = self._loop, None
            self._changed.notify_all()
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_LIMIT_S)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is None:
            self._timer = loop.call_later(seconds, self._on_timer, action)

    def _on_timer(self, action: Callable[[], None]) -> None:
        self._timer = None
        action()

    def _reserve_room(self, request: Request, *, wait: bool) -> bool:
        """Return whether there is room for *request*, and reserve it.

        A wait ends only when a quarter of the room is free: waking up for each request would cost both threads more
        than the request itself.
        """
        with self._changed:
            if wait and not self._has_room(request):
                self._wait_for(lambda: self._held_bytes <= self._low_bytes)
            self._raise_error()
            if not wait and not self._has_room(request):
                return False
            self._reserve(request)
        return True

    def _wait_for(self, done: Callable[[], bool]) -> None:
        """Return when *done* returns true. Meanwhile report the pending retry. Raises: as `send`."""
        while not done() and self._error is None:
            pending = self._pending_retry
            if pending is None:
                self._changed.wait()
            else:
                with self._repeating(pending.reason, next_attempt_s=pending.next_attempt_s):
                    self._changed.wait()
        self._raise_error()

    def _show(self, pending: PendingRetry | None) -> None:
        with self._changed:
            self._pending_retry = pending
            self._changed.notify_all()

    def _reserve(self, request: Request) -> None:
        self._held_bytes += request.memory_bytes
        self._unfinished += 1

    def _has_room(self, request: Request) -> bool:
        return not self._held_bytes or self._held_bytes + request.memory_bytes <= self._max_bytes

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _post(self, group: list[Request]) -> None:
        loop = self._loop
        if group and loop is not None:
            loop.call_soon_threadsafe(self._queue, group)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # the next call raises it
            self._fail(error)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        delivery = self._connect(PendingRetries(self._show))
        self._loop = asyncio.get_running_loop()
        self._workers = [asyncio.create_task(self._work(delivery)) for _ in range(self._parallel)]
        self._started.set()
        await self._stop.wait()
        self._cancel()
        async with asyncio.timeout(_CLOSE_LIMIT_S):
            await asyncio.gather(*self._workers, return_exceptions=True)
            await delivery.aclose()

    def _queue(self, group: list[Request]) -> None:
        if self._error is not None:
            return
        for request in group:
            self._order.add(request)
        self._wake()

    def _wake(self) -> None:
        """Wake as many idle workers as there are requests ready."""
        for _ in range(min(self._order.ready, len(self._idle))):
            waker = self._idle.pop()
            if not waker.done():
                waker.set_result(None)

    async def _work(self, delivery: Delivery) -> None:
        """Deliver one request after the other. The next request uses the connection that the last one just released."""
        while True:
            queued = self._order.start()
            if queued is None:
                waker = asyncio.get_running_loop().create_future()
                self._idle.append(waker)
                await waker
                continue
            try:
                delivered = await delivery.deliver(queued.request)
            except Exception as error:
                self._fail(error)
                self._cancel()
                return
            self._finish(queued, delivered)

    def _finish(self, queued: QueuedRequest, delivered: Delivered) -> None:
        self._order.done(queued)
        nbytes = queued.request.memory_bytes
        with self._changed:
            self._delivered.add(delivered)
            self._held_bytes -= nbytes
            self._unfinished -= 1
            if not self._unfinished or self._held_bytes <= self._low_bytes < self._held_bytes + nbytes:
                self._changed.notify_all()
        self._wake()

    def _cancel(self) -> None:
        """Cancel all requests, queued and in flight."""
        self._order.clear()
        for worker in self._workers:
            if worker is not asyncio.current_task():
                worker.cancel()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()
        if not isinstance(error, CdcError):
            logger.debug("unexpected error in a request", exc_info=error)
