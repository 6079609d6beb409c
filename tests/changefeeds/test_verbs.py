"""What may be asked of a job in each state is the same at every door: command line, statements, REST, page, MCP."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import sqlalchemy as sa
from cdc_testing.rest_rig import ENVIRON, Rest, config, rest_plugins, serving_rest
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.located import Named
from cdc_core.cli.main import _SECTIONS, main
from cdc_core.cli.mcp_tools import Tools
from cdc_core.cli.session import CliSession
from cdc_core.errors import OptionError
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.statements.parsing import parse
from cdc_core.statements.values import Verb as SqlVerb
from cdc_core.store.job_tables import JOB_EVENTS, JOBS
from cdc_core.store.job_values import FOLLOWING, JobState
from cdc_core.store.tables import CHANGEFEEDS
from cdc_core.store.verbs import GRANTED, RULES, RefusedError, Verb
from cdc_core.web.page.texts import ACTIONS

STATES = list(FOLLOWING)
DELETED = {"cancel-requested", "reverting", "canceled"}
DOORS = ("commands", "statements", "requests", "actions", "tools")
OTHER_COMMANDS = {"create", "jobs", "run", "schedule", "show", "sql"}
"""Commands about changefeeds that are no verb of a job that is there."""
NOT_OF_JOBS = ("/topics/reset", "/traces", "/traces/{number}", "/traces/{number}/end")
"""Requests about a changefeed that are no verb."""


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    with serving_rest(tmp_path_factory.mktemp("verbs") / "store") as rest:
        yield rest


@pytest.fixture(autouse=True)
def environment(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PluginHost, "load", rest_plugins)
    monkeypatch.setattr(CounterPlanner, "check_rescan", lambda _planner, _wanted: None)
    for name, value in {**ENVIRON, "CDC_STORE": rest.store.url, "LOGNAME": "ann"}.items():
        monkeypatch.setenv(name, value)


class Seen(NamedTuple):
    """What a request leaves behind: the job's state, None when it is gone, and how much its history has grown."""

    state: JobState | None
    changes: int


class Jobs:
    """Jobs in every state: one of each is brought there, and the others are copies of its rows."""

    def __init__(self, rest: Rest, definition: Mapping[str, Any]) -> None:
        self.store, self.definition, self.numbers = rest.store, definition, itertools.count()
        self.one = rest.store.nodes.join(node("one"), lease_s=86_400)
        self.brought = {(state, stop): self._bring(state, stop=stop) for state in STATES for stop in (False, True)}

    def put(self, state: JobState, *, stop: bool = False) -> str:
        """Return the name of a new job in *state* that has begun; one that is paused is stopped if *stop*."""
        name = f"job{next(self.numbers)}"
        with self.store._database.transaction() as connection:
            for table, row in zip((CHANGEFEEDS, JOBS), self.brought[state, stop], strict=True):
                values = {**row, "name": name, **({"feed_id": name} if "feed_id" in row else {})}
                connection.execute(sa.insert(table), [values])
        return name

    def look(self, name: str) -> Seen:
        changes = sa.select(sa.func.count()).where(JOB_EVENTS.c.name == name)
        with self.store._database.transaction(reading=True) as connection:
            state = connection.execute(sa.select(JOBS.c.state).where(JOBS.c.name == name)).scalar()
            return Seen(state, connection.execute(changes).scalar_one())

    def _bring(self, state: JobState, *, stop: bool) -> list[Mapping[str, Any]]:
        name, store = f"brought{next(self.numbers)}", self.store
        store.jobs.create(name, self.definition, owner="ann", locality=Locality())
        adopted = store.claims.adopt(name, self.one)
        assert adopted is not None
        store.progress.save(name, adopted.epoch, replace(progress(), token={"n": 1}))
        if state in ("failed", "succeeded"):
            store.claims.settle(name, self.one, state, "no")
        elif state == "waiting":
            store.claims.settle(name, self.one, "stopped")
            store.claims.await_match(name, reason="no node matches")
        elif state in ("pause-requested", "paused"):
            Changefeeds(store).pause(name, "lunch", "stop" if stop else "pause")
        elif state != "running":
            Changefeeds(store).cancel(name, "no use")
        if state in ("paused", "reverting", "canceled", "revert-failed"):
            store.claims.settle(name, self.one, "stopped")
        if state in ("canceled", "revert-failed"):
            store.claims.settle(name, self.one, "reverted" if state == "canceled" else "not reverted", "no route")
        assert self.look(name).state == state
        with store._database.transaction(reading=True) as connection:
            selects = [sa.select(table).where(table.c.name == name) for table in (CHANGEFEEDS, JOBS)]
            return [dict(connection.execute(each).one()._mapping) for each in selects]


@pytest.fixture(scope="module")
def jobs(rest: Rest, control: Path) -> Jobs:
    rest.create("first", config(control))
    first = rest.store.changefeeds.find("first")
    assert first is not None
    return Jobs(rest, first.definition)


ARGUMENTS = {
    "cdc alter NAME": ["--set", "resolved=1s"],
    "cdc cancel NAME": ["--yes"],
    "cdc drop NAME": ["--yes"],
    "cdc drop NAME --forget-only": ["--yes"],
    "cdc move NAME": ["--to", "now", "--yes"],
}
FURTHER = {"ALTER CHANGEFEED 'name'": " SET resolved = '1s'"}


def by_command(text: str, name: str) -> bool:
    """Do what a command of the table does; return whether it is done, and not refused."""
    words = text.replace("NAME", name).replace("TABLE", "counter").replace("USER", "bob").split()[1:]
    status = main([*words, *ARGUMENTS.get(text, [])])
    assert status in (0, 2)
    return status == 0


def by_statement(text: str, name: str) -> bool:
    status = main(["sql", text.replace("'name'", f"'{name}'").replace("TO user", "TO bob") + FURTHER.get(text, "")])
    assert status in (0, 2)
    return status == 0


def by_request(rest: Rest, control: Path, text: str, state: JobState, name: str) -> bool:
    method, path = text.replace("{name}", name).replace("{task}", "0").split()
    asked: dict[str, Any] = {}
    if path.endswith("/config"):
        asked = {"json": config(control, resolved="1s") if method == "PUT" else {"resolved": "1s"}}
    elif method == "PATCH":
        [offset] = rest.get(path)["offsets"] if state not in DELETED else [{"partition": {}}]
        asked = {"json": {"offsets": [{**offset, "offset": {"to": "now"}}]}}
    answer = rest.client.request(method, path, **asked)
    if answer.status_code < 300:
        assert answer.status_code in (200, 201, 202, 204)
        return True
    of_connector = path.startswith("/connectors")
    anew = method == "PUT" and path.endswith("/config")
    unknown = of_connector and not anew and (state in DELETED or ("/tasks/" in path and state == "succeeded"))
    refused = 404 if unknown else 400 if path.endswith("/offsets") else 409
    assert (answer.status_code, name in answer.text) == (refused, True), answer.text
    return False


def by_form(rest: Rest, action: str, name: str) -> bool:
    origin = {"Origin": rest.url, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
    content = b"resolved=1s" if action == "alter" else b""
    answer = rest.client.post(f"/ui/changefeeds/{name}/{action}", content=content, headers=origin)
    assert answer.status_code in (303, 409), answer.text
    return answer.status_code == 303


def by_tool(rest: Rest, tool: str, name: str) -> bool:
    named = Named.of(CliSession(), None, None, store=rest.store.url)
    try:
        getattr(Tools(named), tool)(name)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize("verb", RULES)
def test_a_verb_does_the_same_at_every_door(
    rest: Rest, jobs: Jobs, control: Path, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = RULES[verb]
    for state in STATES:
        asks: dict[str, Callable[[str], bool]] = {
            **{text: partial(by_command, text) for text in rule.commands},
            **{text: partial(by_statement, text) for text in rule.statements},
            **{text: partial(by_request, rest, control, text, state) for text in rule.requests},
            **{text: partial(by_form, rest, text) for text in rule.actions if text != "discard"},
            **{text: partial(by_tool, rest, text) for text in rule.tools},
        }
        left = dict[str, Seen]()
        for text, ask in asks.items():
            name = jobs.put(state, stop=verb == "move")
            capsys.readouterr()
            accepted, seen = ask(name), jobs.look(name)
            granted = GRANTED.get(text, rule.does | rule.holds)
            assert accepted == (state in granted), (text, state)
            if (state in granted) != (state in rule.does | rule.holds):
                continue  # as Kafka Connect has it
            if not accepted or state in rule.holds:
                assert seen == Seen(state, 0), (text, state)
            if not accepted and text in rule.commands:
                [line] = capsys.readouterr().err.splitlines()
                assert re.fullmatch(rf"error: job '{name}' (is|has ended|is about to end)\b.*; .+", line), line
            if accepted:
                left[text] = seen
        assert len(set(left.values())) <= 1, (state, left)


def test_the_table_names_every_door(rest: Rest) -> None:
    asked = {door: {text for rule in RULES.values() for text in getattr(rule, door)} for door in DOORS}
    of_changefeeds = {*_SECTIONS["Changefeeds"], *_SECTIONS["Jobs, which nodes run"]}
    assert of_changefeeds - OTHER_COMMANDS == {text.split()[1] for text in asked["commands"]}
    assert {text.split()[0] for text in asked["statements"]} == {"ALTER", *get_args(SqlVerb)}
    served = {f"{each.method} {each.path}" for each in rest.endpoints if each.method != "GET"}
    for verb, rule in RULES.items():
        assert bool(rule.statements) != bool(rule.instead)
        if rule.instead:
            with pytest.raises(OptionError, match=f"has a statement for this; {rule.instead}"):
                parse(f"{verb} JOB 'orders'")
    about = {text for text in served if re.search(r" /(connectors|v1/jobs)/\{name\}", text)}
    assert {text for text in about if not text.endswith(NOT_OF_JOBS)} == asked["requests"]
    on_page = {text.rsplit("/", 1)[1] for text in served if " /ui/changefeeds/{name}/" in text}
    assert on_page - {"traces", "end"} == asked["actions"]
    assert set(ACTIONS) <= asked["actions"]


def test_a_verb_takes_the_same_role_over_rest_and_on_the_page(rest: Rest) -> None:
    requests = {f"{each.method} {each.path}": each.role for each in rest.endpoints}
    actions = {each.path.rsplit("/", 1)[1]: each.role for each in rest.endpoints if each.path.startswith("/ui/c")}
    for verb, rule in RULES.items():
        roles = {requests[text] for text in rule.requests} | {actions[text] for text in rule.actions}
        assert len(roles) <= 1, verb


def test_openapi_tells_in_which_states_a_request_is_granted(rest: Rest) -> None:
    described = {
        f"{method.upper()} {path}": operation["description"]
        for path, operations in rest.get("/openapi.json")["paths"].items()
        for method, operation in operations.items()
    }
    for request, states in GRANTED.items():
        [text] = re.findall(r"states (.*)\.", described[request])
        assert set(text.split(", ")) == states
