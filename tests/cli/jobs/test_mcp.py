"""The tools of `cdc mcp`, called by the SDK's client in this process."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created, ended, paused_job, save
from cdc_testing.pages import Page
from cdc_testing.stored import die, node, progress
from mcp import Client
from mcp.server import MCPServer
from mcp_types import TextContent, TextResourceContents

import cdc_core.cli.explain as explain_module
import cdc_core.cli.mcp_tools as tools_module
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.located import Named
from cdc_core.cli.mcp_server import server_of
from cdc_core.cli.mcp_tools import Tools
from cdc_core.cli.session import CliSession
from cdc_core.errors import ConfigError
from cdc_core.store.progress import DeadLetter, ProgressStore
from cdc_core.store.verbs import RULES
from cdc_core.telemetry.status import Retrying
from cdc_core.timestamp import Timestamp

CHANGING = {name for rule in RULES.values() for name in rule.tools}


def server(*, store: str | None = None, file: object = None, allow_changes: bool = False) -> MCPServer[Any]:
    named = Named.of(CliSession(), None if file is None else str(file), None, store=store)
    return server_of(Tools(named), allow_changes=allow_changes)


def asked(of: MCPServer[Any], tool: str, **arguments: Any) -> Any:
    """Return what *tool* answers. Raises: LookupError with its sentence when that is an error."""

    async def call() -> Any:
        async with Client(of) as client:
            found = await client.call_tool(tool, arguments)
            if found.is_error:
                [sentence] = found.content
                assert isinstance(sentence, TextContent)
                raise LookupError(sentence.text)
            return found.structured_content

    return anyio.run(call)


def refused(of: MCPServer[Any], tool: str, **arguments: Any) -> str:
    with pytest.raises((LookupError, ExceptionGroup)) as error:
        asked(of, tool, **arguments)
    found: BaseException = error.value
    while isinstance(found, ExceptionGroup):
        [found] = found.exceptions
    assert isinstance(found, LookupError), found
    return str(found)


def tools_of(of: MCPServer[Any]) -> dict[str, Any]:
    async def listed() -> Any:
        async with Client(of) as client:
            return (await client.list_tools()).tools

    return {tool.name: tool for tool in anyio.run(listed)}


def test_changes_are_offered_only_when_they_are_allowed(store: ProgressStore) -> None:
    tools = tools_of(server(store=store.url))
    assert tools.keys() & CHANGING == set()
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools.values())
    changing = tools_of(server(store=store.url, allow_changes=True))
    assert changing.keys() == tools.keys() | CHANGING
    assert not any(changing[name].annotations.read_only_hint for name in CHANGING)
    assert Page("mcp.md").first_cells("Tools") == list(changing)


def test_changefeeds_are_listed_with_state_lag_error_and_remedy(store: ProgressStore) -> None:
    created(store)
    save(store, "orders")
    ended(store, "failed", reason="the slot is lost")
    created(store, "users")
    save(store, "users", waiting_on="sink 'kafka'")
    orders, users = asked(server(store=store.url), "list_changefeeds")["changefeeds"]
    assert (orders["state"], orders["error"]) == ("failed", "the slot is lost")
    assert orders["remedy"].startswith("`cdc resume orders` once the cause is fixed")
    assert (users["state"], users["waiting_on"], users["error"], users["remedy"]) == (
        "running",
        "sink 'kafka'",
        None,
        None,
    )
    assert users["behind_s"] > 0
    shown = asked(server(store=store.url), "show_changefeed", name="users")
    assert shown.keys() == Changefeeds(store).report("users").to_json().keys()
    assert (shown["name"], shown["job"]["node"], shown["job"]["history"][0]["state"]) == ("users", "one", "running")


def test_a_diagnosis_names_causes_with_remedies_in_order(store: ProgressStore) -> None:
    one = created(store)

    def diagnosed() -> dict[str, Any]:
        found: dict[str, Any] = asked(server(store=store.url), "diagnose", name="orders")
        return found

    save(store, "orders")
    assert (diagnosed()["is_moving"], diagnosed()["causes"]) == (True, [])
    save(store, "orders", waiting_on="changes")
    assert diagnosed()["is_moving"]
    save(store, "orders", waiting_on="sink 'kafka'", waiting_for="no route to broker:9092")
    assert diagnosed()["causes"] == [{"what": "waits for sink 'kafka': no route to broker:9092", "remedy": None}]
    save(store, "orders", retrying=Retrying.after(None, "no route to broker:9092").to_json())
    assert not (found := diagnosed())["is_moving"]
    assert re.fullmatch("retrying since .*: no route to broker:9092; an attempt is running", found["causes"][0]["what"])
    ended(store, "failed", reason="the slot is lost")
    [cause] = diagnosed()["causes"]
    assert cause == {
        "what": "the slot is lost",
        "remedy": "`cdc resume orders` once the cause is fixed; `cdc alter orders` changes its tables and options",
    }
    assert diagnosed()["latest_events"][-1]["event"] == "changefeed_failed"
    Changefeeds(store).resume("orders")
    die(store, one)
    assert diagnosed()["causes"] == [{"what": "no node is alive", "remedy": "start one with `cdc node`"}]
    two = store.nodes.join(node("two"), lease_s=600)
    for problem, what, remedy in (
        ("no sink 'kafka'", "cannot run job 'orders': no sink 'kafka'", "fix it on node two"),
        ("not now: no route", "failed to run job 'orders' and will try again: no route", None),
    ):
        store.nodes.renew(two.node_id, lease_s=600, problems={"orders": problem})
        assert diagnosed()["causes"] == [{"what": f"node two {what}", "remedy": remedy}]


def test_a_job_without_a_node_of_its_locality_is_diagnosed(store: ProgressStore) -> None:
    one = created(store, locality="region=eu")
    die(store, one)
    store.nodes.join(node("two", "region=us"), lease_s=600)
    [cause] = asked(server(store=store.url), "diagnose", name="orders")["causes"]
    assert cause["what"] == "no live node matches its locality (region=eu)"


def test_a_changefeed_of_cdc_run_is_diagnosed(file: Any, store: ProgressStore, cdc: Cdc) -> None:
    store.changefeeds.register("orders", {"source": "paper://desk/db", "tables": ["t"], "sink": "shelf://room"})

    def causes() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = asked(server(store=store.url), "diagnose", name="orders")["causes"]
        return found

    assert causes() == [{"what": "no run of the changefeed is alive", "remedy": "start it with `cdc run`"}]
    store.statuses.save("orders", 0, {"phase": "failed", "error": "the slot is lost", "host": "here", "pid": 7})
    assert causes() == [{"what": "the slot is lost", "remedy": "fix the cause, then start it with `cdc run`"}]
    store.claims.pause_run("orders", store.changefeeds.begin_attempt("orders"), "a row was refused")
    assert causes()[0] == {
        "what": "it is paused: a row was refused",
        "remedy": "once the cause is fixed, `cdc resume FILE orders`",
    }
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(5), stage="sink", error="no")
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress(), dead_letters=[letter])
    assert causes()[-1]["remedy"] == (
        "fix the cause, stop the run, and then use `cdc replay-dead-letters orders --store DIR|URL`"
    )


def test_a_diagnosis_checks_source_and_sink_when_asked(store: ProgressStore, file: Any, cdc: Cdc) -> None:
    paused_job(store, file, cdc)
    found = asked(server(store=store.url), "diagnose", name="orders", connect=True)
    assert found["checks"]["ok"]
    assert [part["part"] for part in found["checks"]["parts"]] == ["source", "encoder", "sink"]
    assert [cause["remedy"] for cause in found["causes"]] == [
        "`cdc resume orders`",
        "fix the cause, pause it, then `cdc replay-dead-letters orders`",
    ]
    assert "hunter2" not in str(found)


def test_a_diagnosis_leaves_the_locality_of_a_job_to_its_nodes(store: ProgressStore, file: Any, cdc: Cdc) -> None:
    file.write_text(file.read_text() + 'execution_locality = "region=eu"\n')
    store.nodes.join(node("one", "region=eu"), lease_s=600)
    cdc("create", file)
    checks = asked(server(store=store.url), "diagnose", name="orders", connect=True)["checks"]
    assert (checks["ok"], [part["part"] for part in checks["parts"]]) == (True, ["source", "encoder", "sink"])


def test_jobs_are_paused_resumed_and_restarted_with_the_refusals_of_the_service(store: ProgressStore) -> None:
    one = created(store)
    changing = server(store=store.url, allow_changes=True)
    assert asked(changing, "restart_changefeed", name="orders")["state"] == "pause-requested"
    assert asked(changing, "pause_changefeed", name="orders")["state"] == "pause-requested"
    ended(store, "stopped")
    assert store.jobs.events("orders")[-1].state == "paused"
    assert asked(changing, "resume_changefeed", name="orders")["state"] == "running"
    assert [event.reason for event in store.jobs.events("orders")][-3:] == ["requested by ann, over MCP"] * 3
    assert store.claims.adopt("orders", one) is not None
    Changefeeds(store).cancel("orders", "no longer needed")
    assert refused(changing, "resume_changefeed", name="orders") == (
        "job 'orders' is about to end (cancel-requested); wait until it has ended"
    )
    assert refused(changing, "pause_changefeed", name="order") == ("there is no job 'order'; did you mean 'orders'?")


def test_events_are_those_asked_for(store: ProgressStore) -> None:
    created(store)
    of = server(store=store.url)
    kinds = [event["event"] for event in asked(of, "list_events", name="orders")["events"]]
    assert kinds == ["create_changefeed", "create_job", "changefeed_adopted"]
    assert len(asked(of, "list_events", limit=1)["events"]) == 1
    found = asked(of, "list_events", kinds=["node_joined"], since="1h")["events"]
    assert [event["node"] for event in found] == ["one"]
    assert refused(of, "list_events", kinds=["node_join"]) == (
        "unknown event kind 'node_join'; did you mean 'node_joined'?"
    )
    assert "since: 'soon' is not a time" in refused(of, "list_events", since="soon")
    store.events.note("drop_changefeed", "gone")
    assert [event["event"] for event in asked(of, "list_events", name="gone")["events"]] == ["drop_changefeed"]
    assert "did you mean 'orders'?" in refused(of, "list_events", name="order")


def test_a_query_is_explained_that_of_the_changefeed_or_another(
    store: ProgressStore, file: Any, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_module, "plans_of", lambda _feed, schemas: {schemas[0].name: ["Project [id]"]})
    of = server(file=file)
    assert "has no query to explain: it delivers whole rows" in refused(of, "explain", name="orders")
    [table] = asked(of, "explain", name="orders", query="SELECT id FROM counter WHERE id > 5")["tables"]
    assert table["plans"] == ["Project [id]"]
    assert {"title": "columns that a scan reads, 1 of 2 columns", "lines": ["id"]} in table["sections"]


class Alone:
    """Waits, when it is called, whether another thread calls it meanwhile."""

    def __init__(self, result: Any = None) -> None:
        self.calls, self.met = 0, False
        self._result, self._both = result, threading.Barrier(2)

    def __call__(self, *_: object, **__: object) -> Any:
        self.calls += 1
        with suppress(threading.BrokenBarrierError):
            self._both.wait(0.3)
            self.met = True
        return self._result


def twice(of: MCPServer[Any], tool: str, **arguments: Any) -> None:
    """Call *tool* twice at the same time."""

    async def call() -> None:
        async with Client(of) as client, anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(client.call_tool, tool, arguments)

    anyio.run(call)


def test_of_parallel_calls_one_at_a_time_uses_spark(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Alone([])
    monkeypatch.setattr(explain_module, "PlannedQueries", lambda *_, **__: SimpleNamespace(plans=planned))
    monkeypatch.setattr("cdc_core.spark.host.SparkHost", Mock())
    twice(server(file=file), "explain", name="orders", query="SELECT id FROM counter WHERE id > 5")
    assert (planned.calls, planned.met) == (2, False)


def test_of_parallel_calls_one_at_a_time_collects_notes(
    store: ProgressStore, file: Any, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused_job(store, file, cdc)
    checked = Alone(Mock())
    monkeypatch.setattr(tools_module, "check_report", checked)
    twice(server(store=store.url), "diagnose", name="orders", connect=True)
    assert (checked.calls, checked.met) == (2, False)


def test_documentation_is_found_and_every_page_is_a_resource(store: ProgressStore, cdc: Cdc) -> None:
    of = server(store=store.url)
    found = asked(of, "search_docs", words="replay dead letters")["sections"]
    assert found[0]["page"] == "dead-letters"
    assert found[0]["text"]

    async def pages() -> tuple[list[str], str]:
        async with Client(of) as client:
            resources = (await client.list_resources()).resources
            assert all(resource.description == resource.title for resource in resources)
            listed = [str(resource.uri) for resource in resources]
            [contents] = (await client.read_resource("cdc-docs:///errors")).contents
            assert isinstance(contents, TextResourceContents)
            return listed, contents.text

    listed, text = anyio.run(pages)
    assert listed == [f"cdc-docs:///{line.split()[0]}" for line in cdc("docs").out.splitlines()]
    assert text == cdc("docs", "errors").out


def test_answers_name_no_changefeed_of_another_call(file: Any) -> None:
    tools = Tools(Named.of(CliSession(), str(file), None, store=None))
    own = tools.for_a_call()
    with pytest.raises(ConfigError):
        own.explain("orders")
    assert own.session.masked("`cdc rescan FILE NAME`") != "`cdc rescan FILE NAME`"
    assert tools.for_a_call().session.masked("`cdc rescan FILE NAME`") == "`cdc rescan FILE NAME`"


def test_an_unknown_changefeed_or_store_is_one_sentence(store: ProgressStore, tmp_path: Any) -> None:
    assert "there is no progress store" in refused(server(store=store.url), "list_changefeeds")
    created(store)
    assert refused(server(store=store.url), "show_changefeed", name="order") == (
        f"changefeed 'order' is not in the progress store {store.shown}; did you mean 'orders'?"
    )
    assert not (tmp_path / "other").exists()


def test_the_command_takes_a_store_or_a_file(store: ProgressStore, cdc: Cdc) -> None:
    assert cdc.sentence("mcp", "orders", "--store", store.url) == (
        "`cdc mcp` serves all changefeeds of a store; omit 'orders' from the command"
    )


@contextmanager
def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for module in modules:
            patch.setitem(sys.modules, module, None)
        yield


def test_without_the_sdk_it_says_what_to_install(
    store: ProgressStore, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without(monkeypatch, "mcp", "mcp.server", "cdc_core.cli.mcp_server"):
        monkeypatch.delitem(sys.modules, "cdc_core.cli.mcp_server")
        assert cdc.sentence("mcp", "--store", store.url) == "`cdc mcp` needs the MCP SDK: pip install 'cdc-core[mcp]'"
