"""Requests on their way: a thread that sends them, and a border that takes no more than it may hold."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable

from cdc_core import repeating
from cdc_core.errors import CdcError, TerminalSinkError
from cdc_sink_webhook.delivery import Delivered, Delivery
from cdc_sink_webhook.key_order import KeyOrder, Turn
from cdc_sink_webhook.repeats import Repeat, Repeats
from cdc_sink_webhook.request import Request

__all__ = ["Outbox"]

logger = logging.getLogger(__name__)

_GROUP = 64
_CLOSE_LIMIT_S = 2.0


class Outbox:
    """Sends requests in parallel, in order where they share a key. Its thread begins with it.

    Success is silent. After a request that came to nothing none is sent any more: every call raises what became of it.
    While a call waits, the changefeed's status tells what is repeated meanwhile.
    """

    def __init__(self, connect: Callable[[Repeats], Delivery], *, parallel: int, most_bytes: int) -> None:
        """Take what makes the delivery, in the thread that sends; it holds at most *most_bytes* of requests."""
        self._connect = connect
        self._parallel = parallel
        self._most_bytes = most_bytes
        self._few_bytes = most_bytes // 4 * 3
        self._changed = threading.Condition()
        self._held = 0
        self._waiting = 0
        self._error: BaseException | None = None
        self._repeat: Repeat | None = None
        self._delivered = Delivered()
        self._order = KeyOrder()
        self._workers: list[asyncio.Task[None]] = []
        self._idle: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cdc-webhook", daemon=True)
        self._thread.start()
        self._ready.wait()

    def send(self, requests: Iterable[Request]) -> None:
        """Return when all of *requests* are queued. Waits while the border is reached. Raises: what failed earlier."""
        group: list[Request] = []
        for request in requests:
            if not self._take(request, wait=not group):
                self._post(group)
                group = []
                self._take(request, wait=True)
            group.append(request)
            if len(group) == _GROUP:
                self._post(group)
                group = []
        self._post(group)

    def send_now(self, requests: Iterable[Request]) -> None:
        """Queue *requests*, full or not; for the outbox's own thread, which must not wait. Raises: as `send`."""
        for request in requests:
            with self._changed:
                self._raise_error()
                self._reserve(request)
            self._post([request])

    def flush(self) -> Delivered:
        """Return what became of all that was sent since the last flush, as soon as that is known. Raises: as `send`."""
        with self._changed:
            self._wait_for(lambda: not self._waiting)
            delivered, self._delivered = self._delivered, Delivered()
        return delivered

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call *action* in the outbox's thread after so many seconds, unless it is closed by then. It must not wait.

        While a call is yet to come, no other is added: they would become as many as there were batches.
        """
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._set_timer, loop, seconds, action)

    def close(self) -> None:
        """Give up what is under way and close connections, in a moment or later."""
        with self._changed:
            self._error = self._error or TerminalSinkError("the webhook sink is closed; open another")
            loop, self._loop = self._loop, None
            self._changed.notify_all()
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_LIMIT_S)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is None:
            self._timer = loop.call_later(seconds, self._ring, action)

    def _ring(self, action: Callable[[], None]) -> None:
        self._timer = None
        action()

    def _take(self, request: Request, *, wait: bool) -> bool:
        """Return whether there was room for *request*, which is reserved then.

        A wait ends only when a good part of the room is free: to be woken for each request would cost both threads
        more than the request does.
        """
        with self._changed:
            if wait and not self._has_room(request):
                self._wait_for(lambda: self._held <= self._few_bytes)
            self._raise_error()
            if not wait and not self._has_room(request):
                return False
            self._reserve(request)
        return True

    def _wait_for(self, done: Callable[[], bool]) -> None:
        """Return when that is *done*, and tell meanwhile what is repeated. Raises: as `send`."""
        while not done() and self._error is None:
            repeat = self._repeat
            if repeat is None:
                self._changed.wait()
            else:
                with repeating(repeat.reason, next_attempt_s=repeat.next_attempt_s):
                    self._changed.wait()
        self._raise_error()

    def _show(self, repeat: Repeat | None) -> None:
        with self._changed:
            self._repeat = repeat
            self._changed.notify_all()

    def _reserve(self, request: Request) -> None:
        self._held += request.cost
        self._waiting += 1

    def _has_room(self, request: Request) -> bool:
        return not self._held or self._held + request.cost <= self._most_bytes

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
        except BaseException as error:  # told to whoever calls next
            self._fail(error)
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        delivery = self._connect(Repeats(self._show))
        self._loop = asyncio.get_running_loop()
        self._workers = [asyncio.create_task(self._work(delivery)) for _ in range(self._parallel)]
        self._ready.set()
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
        """Let idle workers see to what may begin."""
        for _ in range(min(self._order.ready, len(self._idle))):
            waker = self._idle.pop()
            if not waker.done():
                waker.set_result(None)

    async def _work(self, delivery: Delivery) -> None:
        """Deliver one request after the other: the next begins on the connection that the last has just left."""
        while True:
            turn = self._order.begin()
            if turn is None:
                waker = asyncio.get_running_loop().create_future()
                self._idle.append(waker)
                await waker
                continue
            try:
                delivered = await delivery.deliver(turn.request)
            except Exception as error:
                self._fail(error)
                self._cancel()
                return
            self._settle(turn, delivered)

    def _settle(self, turn: Turn, delivered: Delivered) -> None:
        self._order.done(turn)
        with self._changed:
            self._delivered.add(delivered)
            self._held -= turn.request.cost
            self._waiting -= 1
            if not self._waiting or self._held <= self._few_bytes < self._held + turn.request.cost:
                self._changed.notify_all()
        self._wake()

    def _cancel(self) -> None:
        """Stop all work: what waits is not begun, what is under way broken off."""
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
            logger.debug("a request failed unexpectedly", exc_info=error)
