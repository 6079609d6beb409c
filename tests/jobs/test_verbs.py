"""What may be asked of a job in each state is the same at every door: command line, statements, REST, page."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import sqlalchemy as sa
from cdc_testing.imports import ROOT
from cdc_testing.rest_rig import ENVIRON, Rest, config, rest_plugins, serving_rest
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import cdc, main
from cdc_core.errors import OptionError
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.statements.parsing import INSTEAD, parse
from cdc_core.store.job_tables import JOB_EVENTS, JOBS
from cdc_core.store.job_values import FOLLOWING, JobState
from cdc_core.store.tables import CHANGEFEEDS
from cdc_core.store.verbs import RULES, Verb
from cdc_core.web.page.states import ACTIONS

STATES = list(FOLLOWING)
DELETED = ("cancel-requested", "reverting", "canceled")
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


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> dict[Verb, tuple[list[str], list[str], list[str], list[str]]]:
    """The table of docs/jobs.md."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    found: dict[Verb, Any] = importlib.import_module("generate_jobs").DOORS
    return found


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
    answer = rest.client.post(f"/ui/changefeeds/{name}/{action}", content=b"", headers=origin)
    assert answer.status_code in (303, 409), answer.text
    return answer.status_code == 303


@pytest.mark.parametrize("verb", RULES)
def test_a_verb_does_the_same_at_every_door(
    rest: Rest, jobs: Jobs, control: Path, doors: Any, verb: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = RULES[verb]
    commands_, statements, requests, actions = doors[verb]
    for state in STATES:
        asks: dict[str, Callable[[str], bool]] = {
            **{text: partial(by_command, text) for text in commands_},
            **{text: partial(by_statement, text) for text in statements},
            **{text: partial(by_request, rest, control, text, state) for text in requests},
            **{text: partial(by_form, rest, text) for text in actions if text != "discard"},
        }
        left = dict[str, Seen]()
        for text, ask in asks.items():
            name = jobs.put(state, stop=verb == "move")
            capsys.readouterr()
            accepted, seen = ask(name), jobs.look(name)
            if (
                text.startswith("DELETE /connectors/{name}")
                or (text.endswith("/offsets") and state == "failed")
                or (text.endswith("/config") and text.startswith("PUT") and state in DELETED)
            ):
                assert (
                    accepted
                    == {  # as Kafka Connect has it
                        "DELETE /connectors/{name}": state not in DELETED,
                        "PATCH /connectors/{name}/offsets": False,
                        "DELETE /connectors/{name}/offsets": state == "paused",
                        "PUT /connectors/{name}/config": state == "canceled",  # which creates another one
                    }[text]
                ), (text, state)
                continue
            of_connector = " /connectors/" in text and state in DELETED
            assert accepted == (state in rule.does | rule.holds and not of_connector), (text, state)
            if not accepted or state in rule.holds:
                assert seen == Seen(state, 0), (text, state)
            if not accepted and text in commands_:
                [line] = capsys.readouterr().err.splitlines()
                assert re.fullmatch(rf"error: job '{name}' (is|has ended|is about to end)\b.*; .+", line), line
            if accepted:
                left[text] = seen
        assert len(set(left.values())) <= 1, (state, left)


def test_the_table_names_every_door(rest: Rest, doors: Any) -> None:
    found = [[text for each in doors.values() for text in each[index]] for index in range(4)]
    assert {text.split()[1] for text in found[0]} <= set(cdc.list_commands(click.Context(cdc)))
    served = {f"{each.method} {each.path}" for each in rest.endpoints if each.method != "GET"}
    for verb in [verb for verb, each in doors.items() if not each[1]]:
        with pytest.raises(OptionError, match=f"neither cdc nor CockroachDB has a statement for this; {INSTEAD[verb]}"):
            parse(f"{verb} JOB 'orders'")
    about = {text for text in served if re.search(r" /(connectors|v1/jobs)/\{name\}", text)}
    assert {text for text in about if not text.endswith(NOT_OF_JOBS)} == set(found[2])
    on_page = {text.rsplit("/", 1)[1] for text in served if " /ui/changefeeds/{name}/" in text}
    assert on_page - {"traces", "end"} == set(found[3])
    assert set(ACTIONS) <= set(found[3])
