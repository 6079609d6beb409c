"""`cdc mcp` as an assistant's program starts it: the SDK's client, a pipe, PostgreSQL and a changefeed at work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from cdc_testing.documented_role import documented
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock, losing
from cdc_testing.runs import eventually
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from cdc_core.engine.control_requests import Answers

Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2))")
    sql.execute("INSERT INTO orders SELECT g, g FROM generate_series(1, 3) g")
    return sql


@pytest.fixture
def engine(database: str, sql: Sql, tmp_path: Path) -> Iterator[LocalEngine]:
    """The changefeed of shop.toml, which has delivered the table."""
    sink = f"file://{tmp_path}/out"
    (tmp_path / "shop.toml").write_text(
        f'[changefeed.orders]\nsource = "{documented(database)}"\ntables = ["orders"]\nsink = "{sink}"\n'
        "[changefeed.orders.options]\nupdated = true\nresolved = true\n"
    )
    with closing(LocalEngine(resolved_feed(database, sink, "orders", name="orders"), tmp_path)) as engine:
        engine.run()
        engine.until(clock(database))
        yield engine


def talk(directory: Path, conversation: Callable[[Call], Awaitable[None]]) -> None:
    """Start `cdc mcp` for shop.toml in *directory*, and have the conversation with it."""
    arguments = ["-m", "cdc_core", "mcp", str(directory / "shop.toml"), "--state", str(directory)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))

    async def connected() -> None:
        async with Client(server) as client:

            async def call(tool: str, **given: Any) -> dict[str, Any]:
                found = await client.call_tool(tool, given)
                assert not found.is_error, found.content
                assert found.structured_content is not None
                assert [type(content) for content in found.content] == [TextContent]
                answer: dict[str, Any] = found.structured_content
                return answer

            await conversation(call)

    anyio.run(connected)


@asynccontextmanager
async def stepping(engine: LocalEngine, change: Callable[[], object] | None = None) -> AsyncIterator[None]:
    """Take steps while the block waits for an answer. Call *change* once the planner knows of a trace."""
    is_over, changes = threading.Event(), [change] if change else []

    def steps() -> None:
        while not is_over.is_set():
            engine.step()
            if changes and Answers.of(engine.store).traces:
                engine.step()
                changes.pop()()

    async with anyio.create_task_group() as group:
        group.start_soon(to_thread.run_sync, steps)
        try:
            yield
        finally:
            is_over.set()


def test_an_assistant_finds_out_how_a_changefeed_is(
    database: str, sql: Sql, engine: LocalEngine, tmp_path: Path
) -> None:
    async def conversation(call: Call) -> None:
        [listed] = (await call("list_changefeeds"))["changefeeds"]
        assert listed["name"] == "orders"
        assert listed["behind_s"] < 3600
        found = await call("diagnose", name="orders", connect=True)
        assert [(part["part"], part["ok"]) for part in found["checks"]["parts"]] == [
            ("progress", True),
            ("source", True),
            ("encoder", True),
            ("sink", True),
        ]
        async with stepping(engine, lambda: sql.execute("UPDATE orders SET total = 7.50 WHERE id = 2")):
            traced = await call("trace", name="orders", table="orders", key="[2]", timeout="60s")
        [change] = traced["changes"]
        assert (change["key"], change["op"], change["complete"]) == ([2], "update", True)

        with losing(sql):
            sql.execute("UPDATE orders SET total = 8 WHERE id = 3")
        async with stepping(engine):
            audited = await call("audit", name="orders", wait_s=60)
        [difference] = audited["differences"]
        assert difference.pop("table").endswith(".public.orders")
        assert difference == {"finding": "different", "key": {"id": "3"}, "columns": ["total"]}
        assert (audited["rows"], audited["different"]) == (3, 1)

    talk(tmp_path, conversation)


@pytest.mark.slow
def test_a_query_is_explained_with_the_plan_of_spark(engine: LocalEngine, tmp_path: Path) -> None:
    async def conversation(call: Call) -> None:
        query = "SELECT id, upper(cast(total AS string)) AS shown FROM orders WHERE id > 1"
        [table] = (await call("explain", name="orders", query=query))["tables"]
        assert [section["lines"] for section in table["sections"] if "rows that a scan" in section["title"]] == [
            ["id > 1"]
        ]
        assert "upper" in table["plans"][0]

    talk(tmp_path, conversation)


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
def test_it_ends_when_told_so_in_the_middle_of_a_trace(engine: LocalEngine, tmp_path: Path, how: str) -> None:
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    trace = {"name": "trace", "arguments": {"name": "orders", "timeout": "1h"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": version},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": trace},
    ]
    command = [sys.executable, "-m", "cdc_core", "mcp", str(tmp_path / "shop.toml"), "--state", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        for message in messages:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        eventually("the trace is asked for", lambda: bool(engine.store.traces.of("orders")))
        if how == "SIGTERM":
            server.terminate()
        else:
            server.stdin.close()
        assert server.wait(60) == (0 if how == "end of input" else 128 + signal.SIGTERM)
