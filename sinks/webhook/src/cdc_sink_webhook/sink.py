"""The webhook sink."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from cdc_core.errors import CdcError, PartialWriteError, TerminalSinkError
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName
from cdc_core.sink import Flushed, Sink, SinkContext, SliceInfo
from cdc_core.timestamp import Timestamp
from cdc_sink_webhook.batches import Batches
from cdc_sink_webhook.delivery import Delivered
from cdc_sink_webhook.options import WebhookOptions
from cdc_sink_webhook.outbox import Outbox
from cdc_sink_webhook.plan import Plan
from cdc_sink_webhook.reaching import reach

__all__ = ["WebhookSink"]

_CHUNK_ROWS = 4_096
"""Rows that are cut into requests at a time: those of one chunk may be in memory beyond `buffer_size`."""


class WebhookSink(Sink):
    """Posts rows to an endpoint, in batches of one table each, several at a time; a resolved mark is a request alone.

    Order per key holds: a request begins only when no earlier one that shares a key is still under way, repeats of it
    and the search for bad rows in it included. So no version of a row arrives for the first time behind a newer one. A
    request that was not answered may still be at work when its repeat arrives, and a repeat may be taken twice: it has
    the same `Idempotency-Key`. A writer holds `buffer_size` bytes of requests, one emitted batch, and one chunk of it.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, WebhookOptions):
            raise TypeError(f"options must be WebhookOptions, not {type(context.options).__name__}")
        self._outbox: Outbox | None = None
        self._batches: Batches | None = None
        self._busy = threading.Lock()
        self._rows = 0
        self._delivered = Delivered()
        self._begun = False
        self._occasion = ""
        self._closed = False

    def topic(self, table: TableName) -> str:
        """Return the table's name, or its full name: what messages have in the field `topic`."""
        return self.context.topics().of(table)

    def check(self) -> None:
        """Return when the endpoint takes connections. No request is sent. Raises: ConfigError, in seconds."""
        plan = Plan.of(self.context)
        reach(plan.endpoint, plan.tls, given=plan.options.client_cert is not None)

    def prepare(self) -> None:
        """There is nothing to make at an endpoint."""

    def begin(self, slice_: SliceInfo) -> None:
        """Give up what was not flushed.

        Requests do not name their slice. But those that send refused rows again have identities of their own, in every
        run, or an endpoint that remembers its answers would give the same one.
        """
        self._require_open()
        self._begun = True
        self._delivered = Delivered()
        occasion = f"replay {self.context.epoch}" if slice_.replay else ""
        if self._rows or occasion != self._occasion:
            self._drop()
        self._occasion = occasion

    def emit(self, rows: RowBatch) -> None:
        """Queue *rows* for requests. Waits while the buffer is full."""
        self._require_open()
        if not self._begun:
            raise TerminalSinkError("the webhook sink was given rows before begin")
        if len(rows) == 0:
            return
        messages = self.context.encoder.encode(rows, topic=self.topic(rows.schema.name))
        with self._busy:
            outbox, batches = self._opened()
            for start in range(0, len(rows), _CHUNK_ROWS):
                chunk = rows.slice(start, _CHUNK_ROWS)
                outbox.send(batches.add(chunk, _slice(messages, start), first=self._rows))
                self._rows += len(chunk)
            if batches.due_at is not None:
                outbox.send(batches.due())
            due_at = batches.due_at
        _wake(outbox, due_at, self._send_due)  # now that a timer which rings does not find us busy

    def flush(self) -> Flushed:
        """Return when the endpoint has taken every row. Counts the bytes of bodies as they were sent.

        Raises: PartialWriteError for rows that it refuses.
        """
        self._require_open()
        with self._busy:
            if self._outbox is not None and self._batches is not None:
                self._outbox.send(self._batches.rest())
                self._delivered.add(self._outbox.flush())
        self._rows = 0
        failures, self._delivered.failures = sorted(self._delivered.failures), []
        if failures:  # what was delivered is counted by the next flush
            raise PartialWriteError(f"the endpoint refuses {len(failures)} rows: {failures[0][1]}", failures=failures)
        delivered, self._delivered = self._delivered, Delivered()
        return Flushed(messages=delivered.messages, bytes=delivered.nbytes)

    def emit_resolved(self, timestamp: Timestamp) -> None:
        """Return when the endpoint has taken the mark, which speaks for all tables."""
        self._require_open()
        outbox, batches = self._opened()
        outbox.send([batches.mark(self.context.encoder.encode_resolved("", timestamp))])
        outbox.flush()

    def close(self) -> None:
        """Give up what was not flushed. Waits for no answer. May be called twice."""
        self._drop()
        self._closed = True

    def _opened(self) -> tuple[Outbox, Batches]:
        """Return the outbox, begun when it is first needed: a constructor starts nothing."""
        if self._outbox is None or self._batches is None:
            plan = Plan.of(self.context)
            self._batches = batches = plan.batches(self._occasion)
            self._outbox = Outbox(
                lambda repeats: plan.delivery(batches, repeats),
                parallel=plan.options.parallel_requests,
                most_bytes=plan.options.buffer_size,
            )
        return self._outbox, self._batches

    def _send_due(self) -> None:
        """Send what has waited long enough. In the outbox's thread; a call that is going on will see to it itself."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            outbox, batches = self._outbox, self._batches  # which `close` may take away meanwhile
            if outbox is not None and batches is not None:
                with contextlib.suppress(CdcError):  # the next call raises it
                    outbox.send_now(batches.due())
                    _wake(outbox, batches.due_at, self._send_due)
        finally:
            self._busy.release()

    def _drop(self) -> None:
        outbox, self._outbox, self._batches = self._outbox, None, None
        self._rows, self._delivered = 0, Delivered()
        if outbox is not None:
            outbox.close()

    def _require_open(self) -> None:
        if self._closed:
            raise TerminalSinkError("the webhook sink is closed; open another")


def _wake(outbox: Outbox, due_at: float | None, action: Callable[[], None]) -> None:
    if due_at is not None:
        outbox.later(max(0.0, due_at - time.monotonic()), action)


def _slice(messages: MessageBatch, start: int) -> MessageBatch:
    return MessageBatch(
        topic=messages.topic,
        key=messages.key.slice(start, _CHUNK_ROWS),
        value=messages.value.slice(start, _CHUNK_ROWS),
        updated=messages.updated.slice(start, _CHUNK_ROWS),
    )
