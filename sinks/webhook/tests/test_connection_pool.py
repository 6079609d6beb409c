"""Which requests share a connection, and what becomes of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_sink_webhook.connections import Connections, Line


class Pool:
    """What a line connects by; it connects to nothing."""

    def __init__(self) -> None:
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def connections(*, idle_s: float = 60.0) -> Connections:
    new_pool: Any = Pool
    return Connections(new_pool, idle_s=idle_s)


def is_closed(line: Line) -> bool:
    pool: Any = line.pool
    return bool(pool.closed)


async def settings(line: Line, *, streams: int | None = None) -> None:
    """Have the endpoint say its settings on *line*: how many *streams*, or nothing of that."""
    event = SimpleNamespace(changed_settings={} if streams is None else {3: SimpleNamespace(new_value=streams)})
    await line.trace("http2.receive_remote_settings.complete", {"return_value": event})


async def lines_of(found: Connections, stack: AsyncExitStack, count: int) -> list[asyncio.Task[Line]]:
    """Return tasks that each want a line for a request, after as much as they can do now."""

    async def want() -> Line:
        return await stack.enter_async_context(found.lease())

    tasks = [asyncio.create_task(want()) for _ in range(count)]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


Test = Callable[[Connections, AsyncExitStack], Awaitable[None]]


def run(test: Test, found: Connections) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            await test(found, stack)

    asyncio.run(main())


def test_requests_wait_for_the_first_to_learn_how_many_may_share_its_connection() -> None:
    async def test(found: Connections, stack: AsyncExitStack) -> None:
        tasks = await lines_of(found, stack, 8)
        assert [task.done() for task in tasks] == [True] + [False] * 7
        await settings(tasks[0].result(), streams=3)
        await asyncio.sleep(0.01)
        lines = [task.result() for task in tasks if task.done()]
        assert len(lines) == 5  # three here, and the first of two other lines
        assert sorted(lines.count(line) for line in set(lines)) == [1, 1, 3]
        for line in set(lines):
            await settings(line, streams=3)
        lines = await asyncio.gather(*tasks)
        assert sorted(lines.count(line) for line in set(lines)) == [2, 3, 3]

    run(test, connections())


def test_an_endpoint_that_sets_no_limit_gets_a_connection_for_each_request() -> None:
    async def test(found: Connections, stack: AsyncExitStack) -> None:
        tasks = await lines_of(found, stack, 4)
        await settings(tasks[0].result())
        assert len(set(await asyncio.gather(*tasks))) == 4

    run(test, connections())


def test_nobody_waits_for_a_request_that_has_failed() -> None:
    async def test(found: Connections, stack: AsyncExitStack) -> None:
        first = AsyncExitStack()
        await first.enter_async_context(found.lease())
        tasks = await lines_of(found, stack, 3)
        with suppress(OSError):
            async with first:
                raise OSError
        assert len(set(await asyncio.gather(*tasks))) == 3

    run(test, connections())


def test_a_line_that_is_mistrusted_is_closed_when_its_last_request_is_over() -> None:
    async def test(found: Connections, stack: AsyncExitStack) -> None:
        async with found.lease() as line:
            await settings(line, streams=5)
            async with found.lease() as shared:
                assert shared is line
                found.mistrust(line)
            async with found.lease() as other:
                assert other is not line
            assert not is_closed(line)
        assert is_closed(line)

    run(test, connections())


@pytest.mark.parametrize(("idle_s", "closed"), [(0.0, True), (60.0, False)])
def test_a_line_that_is_not_needed_any_more_is_closed(idle_s: float, closed: bool) -> None:
    async def test(found: Connections, stack: AsyncExitStack) -> None:
        async with found.lease() as first:
            await first.trace("http11.send_request_headers.started", {})
            async with found.lease() as second:
                await second.trace("http11.send_request_headers.started", {})
        await asyncio.sleep(0.001)
        async with found.lease() as third:
            assert third is first
        assert (is_closed(first), is_closed(second)) == (False, closed)

    run(test, connections(idle_s=idle_s))
