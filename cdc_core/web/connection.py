"""One connection of a client, which may be neither slow nor stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["GuardedConnection"]

_TOO_SLOW = b"the head of the request took too long\n"


class GuardedConnection(H11Protocol):
    """Serves HTTP/1.1. It is cut off when a head takes longer than *within_s*, or an answer is not read for so long.

    *on_end* is called once it has ended. `request.state.certificate` is the client's, as `getpeercert` has it.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        within_s: float,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._within_s, self._on_end = within_s, on_end
        self._head: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, "certificate": tls.getpeercert() or None if tls else None}
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and end the connection: an answer that has begun or is due cannot follow."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self._on_end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(self._within_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch_head(self) -> None:
        """Let time run while the client has to send a head. Between requests the server closes idle connections."""
        if self.conn.their_state is h11.IDLE:
            if self._head is None:
                self._head = self.loop.call_later(self._within_s, self._give_up)
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        length = str(len(_TOO_SLOW)).encode()
        headers = [(b"content-type", b"text/plain"), (b"content-length", length), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
            h11.Data(data=_TOO_SLOW),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
