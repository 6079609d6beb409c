"""A minimal HTTPS endpoint: `python webhook_endpoint.py CERTIFICATE KEY` prints its port.

It reads each request to its end, ignores its content, and answers 200. HTTP/1.1 only.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_LENGTH = b"content-length:"


@contextmanager
def slow_endpoint(delay_s: float) -> Iterator[int]:
    """Yield the port of an endpoint without TLS that answers late, in a thread."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(partial(Connection, delay_s=delay_s), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Connection(asyncio.Protocol):
    """Counts the bytes of bodies instead of storing them. Answers after *delay_s*."""

    def __init__(self, *, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._head = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                taken = min(self._left, len(data))
                self._left -= taken
                data = data[taken:]
                if not self._left:
                    asyncio.get_running_loop().call_later(self._delay_s, self._transport.write, _ANSWER)
                continue
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._head = b""
            self._left = int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0])


async def main(certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
