"""Which requests share a connection, and when connections are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import httpcore2
import pytest
from cdc_sink_webhook.connections import Connection, ConnectionPool, Http2Stream


class FakePool:
    """A pool of httpcore2 that connects to nothing. `say_goodbye` does what the endpoint does."""

    def __init__(self, say_goodbye: Callable[[], None]) -> None:
        self.say_goodbye = say_goodbye
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def new_pool(*, idle_s: float = 60.0, max_age_s: float = 300.0) -> ConnectionPool:
    fake: Any = FakePool
    return ConnectionPool(fake, idle_s=idle_s, max_age_s=max_age_s)


def is_closed(connection: Connection) -> bool:
    pool: Any = connection.pool
    return bool(pool.closed)


async def receive_settings(connection: Connection, *, streams: int | None = None) -> None:
    """Let the endpoint send its settings on *connection*: the number of *streams*, or settings without it."""
    event = SimpleNamespace(changed_settings={} if streams is None else {3: SimpleNamespace(new_value=streams)})
    await connection.trace("http2.receive_remote_settings.complete", {"return_value": event})


async def leases(pool: ConnectionPool, stack: AsyncExitStack, count: int) -> list[asyncio.Task[Connection]]:
    """Return tasks that each lease a connection, after they have run as far as they can."""

    async def lease() -> Connection:
        return await stack.enter_async_context(pool.lease())

    tasks = [asyncio.create_task(lease()) for _ in range(count)]
    await settled()
    return tasks


async def settled() -> None:
    """Let all tasks run as far as they can. They wait for each other alone, so this depends on no time."""
    for _ in range(30):
        await asyncio.sleep(0)


Test = Callable[[ConnectionPool, AsyncExitStack], Awaitable[None]]


def run(test: Test, pool: ConnectionPool) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            await test(pool, stack)

    asyncio.run(main())


def test_requests_wait_until_the_capacity_of_a_connection_is_known() -> None:
    async def test(pool: ConnectionPool, stack: AsyncExitStack) -> None:
        tasks = await leases(pool, stack, 8)
        assert [task.done() for task in tasks] == [True] + [False] * 7
        await receive_settings(tasks[0].result(), streams=3)
        await settled()
        leased = [task.result() for task in tasks if task.done()]
        assert len(leased) == 5  # three on this connection, and the first on each of two others
        assert sorted(leased.count(connection) for connection in set(leased)) == [1, 1, 3]
        for connection in set(leased):
            await receive_settings(connection, streams=3)
        leased = await asyncio.gather(*tasks)
        assert sorted(leased.count(connection) for connection in set(leased)) == [2, 3, 3]

    run(test, new_pool())


def test_without_a_limit_of_the_endpoint_each_request_has_its_own_connection() -> None:
    async def test(pool: ConnectionPool, stack: AsyncExitStack) -> None:
        tasks = await leases(pool, stack, 4)
        await receive_settings(tasks[0].result())
        assert len(set(await asyncio.gather(*tasks))) == 4

    run(test, new_pool())


def test_no_request_waits_for_a_failed_one() -> None:
    async def test(pool: ConnectionPool, stack: AsyncExitStack) -> None:
        first = AsyncExitStack()
        await first.enter_async_context(pool.lease())
        tasks = await leases(pool, stack, 3)
        with suppress(OSError):
            async with first:
                raise OSError
        assert len(set(await asyncio.gather(*tasks))) == 3

    run(test, new_pool())


@pytest.mark.parametrize("reason", ["timeout", "goodbye", "age"])
def test_a_retired_connection_is_closed_after_its_last_request(reason: str) -> None:
    async def test(pool: ConnectionPool, stack: AsyncExitStack) -> None:
        async with pool.lease() as connection:
            await receive_settings(connection, streams=5)
            async with pool.lease() as shared:
                assert shared is connection
                if reason == "timeout":
                    pool.retire(connection)
                elif reason == "goodbye":
                    fake: Any = connection.pool
                    fake.say_goodbye()
            async with pool.lease() as other:
                assert other is not connection
            assert not is_closed(connection)
        assert is_closed(connection)

    run(test, new_pool(max_age_s=0.0 if reason == "age" else 300.0))


@pytest.mark.parametrize(("idle_s", "closed"), [(0.0, True), (60.0, False)])
def test_an_idle_connection_is_closed_after_its_time(idle_s: float, closed: bool) -> None:
    async def test(pool: ConnectionPool, stack: AsyncExitStack) -> None:
        async with pool.lease() as first:
            await first.trace("http11.send_request_headers.started", {})
            async with pool.lease() as second:
                await second.trace("http11.send_request_headers.started", {})
        await asyncio.sleep(0.001)
        async with pool.lease() as third:
            assert third is first
        assert (is_closed(first), is_closed(second)) == (False, closed)

    run(test, new_pool(idle_s=idle_s))


class FakeStream:
    """A connection that gives *reads*, and then ends."""

    def __init__(self, *reads: bytes) -> None:
        self.reads = list(reads)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.reads.pop(0) if self.reads else b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None: ...

    async def aclose(self) -> None: ...


def frame(kind: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, 0]) + stream.to_bytes(4) + payload


REFUSED = {stream: frame(8, stream, b"\0\0\0\1") + frame(3, stream, b"\0\0\0\7") for stream in (1, 3, 5, 7)}


@pytest.mark.parametrize(
    ("last", "error", "shown"),
    [
        (0, 0, REFUSED[1] + REFUSED[3] + REFUSED[5]),
        (1, 0, REFUSED[3] + REFUSED[5]),
        (5, 0, b""),
        (2**31 - 1, 0, b""),
        (1, 2, None),
    ],
)
def test_a_goodbye_refuses_the_requests_that_the_endpoint_did_not_take(
    last: int, error: int, shown: bytes | None
) -> None:
    goodbye, answer = frame(7, 0, last.to_bytes(4) + error.to_bytes(4) + b"bye"), frame(0, 1, b"answer")
    shown = goodbye if shown is None else shown
    received = answer + goodbye + answer

    async def test(cut: int) -> None:
        goodbyes: list[None] = []
        fake: Any = FakeStream(received[:cut], received[cut:])
        stream = Http2Stream(fake, lambda: goodbyes.append(None))
        await stream.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, b"") + frame(1, 1, b"request"))
        await stream.write(frame(1, 3, b"request") + frame(0, 3, b"body") + frame(1, 5, b"request"))
        seen = b""
        while data := await stream.read(65536):
            seen += data
        assert (seen, len(goodbyes)) == (answer + shown + answer, 0 if error else 1)
        await stream.write(frame(1, 7, b"request"))
        assert await stream.read(65536) == (b"" if error or last > 7 else REFUSED[7])

    for cut in range(1, len(received)):
        asyncio.run(test(cut))


@pytest.mark.parametrize("body_bytes", [10, 100_000])
def test_a_refused_request_ends_at_once(body_bytes: int) -> None:
    async def test() -> None:
        settings, window = frame(4, 0, b""), frame(8, 0, (1 << 20).to_bytes(4))
        fake: Any = FakeStream(settings + window, frame(7, 0, bytes(8)))
        origin = httpcore2.Origin(b"https", b"localhost", 443)
        connection = httpcore2.AsyncHTTP2Connection(origin, Http2Stream(fake, lambda: None))
        request = httpcore2.Request(
            "POST",
            "https://localhost",
            headers={"host": "localhost", "content-length": str(body_bytes)},
            content=bytes(body_bytes),
        )
        with pytest.raises(httpcore2.ProtocolError) as error:
            await connection.handle_async_request(request)
        assert "Server disconnected" not in str(error.value)

    asyncio.run(test())
