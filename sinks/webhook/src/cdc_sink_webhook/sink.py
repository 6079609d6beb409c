"""The webhook sink: posts rows to an endpoint."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from cdc_core import (
    CdcError,
    Flushed,
    MessageBatch,
    RowBatch,
    Sink,
    SinkContext,
    SliceInfo,
    TerminalSinkError,
)
from cdc_sink_webhook.batcher import Batcher
from cdc_sink_webhook.outbox import Outbox
from cdc_sink_webhook.settings import Settings

_CHUNK_ROWS = 4_096
"""How many rows are cut into requests at a time. One such chunk may be in memory beyond `buffer_size`."""


class WebhookSink(Sink):
    """Posts rows to an endpoint, in batches of one table each, several requests in parallel.

    Order per key: a request starts only after every earlier request with a common key has finished, including its
    retries and the search for refused rows in it. So no version of a row arrives for the first time after a newer one.
    The endpoint may still be processing an unanswered request when its retry arrives, and may accept both; they have
    the same `Idempotency-Key`. A writer holds `buffer_size` bytes of requests, one emitted batch, and one chunk of it.
    """

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._outbox: Outbox | None = None
        self._batcher: Batcher | None = None
        self._busy = threading.Lock()
        self._rows = 0
        self._replay = ""
        self._closed = False

    def begin(self, slice_: SliceInfo) -> None:
        """Note whether the rows are replayed. Requests do not depend on their slice in any other way.

        Replayed rows get request ids of their own in every attempt: an endpoint that remembers its answers would
        otherwise repeat its refusal.
        """
        self._replay = f"replay {self.context.epoch}" if slice_.replay else ""
        if self._batcher is not None:
            self._batcher.replay = self._replay

    def admit(self, topic: str) -> str | None:
        """Refuse the topic of the dead letters. A request may have any other."""
        return f"topic '{topic}' is that of the dead letters" if topic in self.context.reserved_topics else None

    def emit(self, rows: RowBatch) -> None:
        """Queue *rows* for requests. Waits while the buffer is full."""
        if len(rows) == 0:
            return
        messages = self.context.encoder.encode(rows, topic=self.context.topics().of_rows(rows))
        with self._busy:
            outbox, batcher = self._open()
            batcher.traced.update({self._rows + index: row for index, row in self.context.traced_rows(rows)})
            for start in range(0, len(rows), _CHUNK_ROWS):
                chunk = rows.slice(start, _CHUNK_ROWS)
                outbox.send(batcher.add(chunk, _slice(messages, start), first=self._rows))
                self._rows += len(chunk)
            if batcher.due_at is not None:
                outbox.send(batcher.due())
            due_at = batcher.due_at
        _wake(outbox, due_at, self._send_due)  # after the lock is released, so that the timer can take it

    def flush(self) -> Flushed:
        """Return when the endpoint has accepted or refused every row. Counts the bytes of bodies as sent."""
        with self._busy:
            outbox, batcher = self._open()
            outbox.send(batcher.rest())
            delivered = outbox.flush()
        self._rows = 0
        refused = tuple(sorted(delivered.refused, key=lambda row: row.index))
        return Flushed(messages=delivered.messages, bytes=delivered.nbytes, refused=refused)

    def close(self) -> None:
        """Cancel what was not flushed, without waiting for answers."""
        self._closed = True
        outbox, self._outbox, self._batcher = self._outbox, None, None
        if outbox is not None:
            outbox.close()

    def _open(self) -> tuple[Outbox, Batcher]:
        """Return the outbox and the batcher. They are made at first use: a constructor starts nothing."""
        if self._closed:
            raise TerminalSinkError("the webhook sink is closed")
        if self._outbox is None or self._batcher is None:
            settings = Settings.of(self.context)
            self._batcher = settings.batcher()
            self._batcher.replay = self._replay
            self._outbox = settings.outbox(
                self._batcher, parallel=settings.options.parallel_requests, repeating=self.context.repeating
            )
        return self._outbox, self._batcher

    def _send_due(self) -> None:
        """Send batches that have waited long enough. In the outbox's thread; a call in progress sends them itself."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            outbox, batcher = self._outbox, self._batcher  # `close` may remove them meanwhile
            if outbox is not None and batcher is not None:
                with contextlib.suppress(CdcError):  # the next call raises it
                    outbox.send_now(batcher.due())
                    _wake(outbox, batcher.due_at, self._send_due)
        finally:
            self._busy.release()


def _wake(outbox: Outbox, due_at: float | None, action: Callable[[], None]) -> None:
    if due_at is not None:
        outbox.later(max(0.0, due_at - time.monotonic()), action)


def _slice(messages: MessageBatch, start: int) -> MessageBatch:
    return MessageBatch(
        topic=messages.topic,
        key=messages.key.slice(start, _CHUNK_ROWS),
        value=messages.value.slice(start, _CHUNK_ROWS),
        updated=messages.updated.slice(start, _CHUNK_ROWS),
        attributes=None
        if messages.attributes is None
        else {
            name: given if isinstance(given, str) else given.slice(start, _CHUNK_ROWS)
            for name, given in messages.attributes.items()
        },
    )
