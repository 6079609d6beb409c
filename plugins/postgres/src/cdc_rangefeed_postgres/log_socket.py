"""How slices come from a decoding session to the readers on its host: through a socket that no other user reaches.

The name of the socket is in Linux's abstract namespace, so nothing stays behind when its process is killed.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from cdc_core import RetryableRangefeedError

POSSIBLE = hasattr(socket, "SO_PEERCRED")
"""Whether this system has such sockets."""

_REQUEST = struct.Struct("=qq")
_FRAME = struct.Struct("=ii")
_CREDENTIALS = struct.Struct("=iII")
_OFFSET_BYTES = 4
_COMPLETE = -1
_LIMIT_S = 30.0
"""The session itself waits for less than this."""


class Session(Protocol):
    """What has slices of the log."""

    def slice(self, start: int, end: int) -> Iterator[Any]:
        """Yield arrays of messages, each with the `offsets` and the `data` of an Arrow array. The first has no row.

        Raises: RetryableRangefeedError.
        """
        ...

    def close(self) -> None: ...


S = TypeVar("S", bound=Session)


class SliceSocket(Generic[S]):
    """Gives the slices of *session* to processes of the same user, in a thread for each. Closes it, also on failure.

    The constructor raises OSError, and RuntimeError when there are too many threads.
    """

    def __init__(self, session: S) -> None:
        self.name = f"cdc-{secrets.token_hex(16)}"
        self.session = session
        self.requests = 0
        """How many slices were asked for."""
        with ExitStack() as opened:
            opened.callback(session.close)
            self._socket = opened.enter_context(socket.socket(socket.AF_UNIX))
            self._socket.bind(f"\0{self.name}")
            self._socket.listen()
            threading.Thread(target=self._accept, name="cdc-log-socket", daemon=True).start()
            opened.pop_all()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.session.close()

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(reader,), name="cdc-log-reader", daemon=True).start()

    def _serve(self, reader: socket.socket) -> None:
        """Send one slice. A reader that gets no end knows that something was missing."""
        with reader, suppress(OSError, RetryableRangefeedError):
            reader.settimeout(_LIMIT_S)
            if not _is_same_user(reader):
                return
            self.requests += 1
            start, end = _REQUEST.unpack(_received(reader, _REQUEST.size))
            reader.settimeout(None)  # a sink may let the reader wait
            for piece in self.session.slice(start, end):
                reader.sendall(_FRAME.pack(len(piece.offsets) - 1, len(piece.data)))
                reader.sendall(piece.offsets)
                reader.sendall(piece.data)
            reader.sendall(_FRAME.pack(_COMPLETE, 0))


def slice_from(name: str, start: int, end: int) -> Iterator[pa.Array]:
    """Yield the arrays of messages that `Session.slice` gives at the socket *name*.

    Raises: OSError when the process is not on this host, is gone, or cannot give all of it.
    """
    with socket.socket(socket.AF_UNIX) as session:
        session.settimeout(_LIMIT_S)
        session.connect(f"\0{name}")
        if not _is_same_user(session):
            raise PermissionError("the socket belongs to another user")
        session.sendall(_REQUEST.pack(start, end))
        while True:
            count, size = _FRAME.unpack(_received(session, _FRAME.size))
            if count == _COMPLETE:
                return
            offsets = _received(session, (count + 1) * _OFFSET_BYTES)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_received(session, size))]
            yield pa.Array.from_buffers(pa.binary(), count, buffers)


def _is_same_user(peer: socket.socket) -> bool:
    _, uid, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(uid == os.geteuid())


def _received(peer: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got = peer.recv_into(view[done:])
        if got == 0:
            raise ConnectionError("the session ended before the slice did")
        done += got
    return data
