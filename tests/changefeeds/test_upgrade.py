"""Jobs in every state, in a store that an older version wrote: all of them are as before, and take every verb."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import node

from cdc_core import Timestamp
from cdc_core.changefeeds.moving import PlannedMove
from cdc_core.changefeeds.service import Alteration, Changefeeds, RefusedError
from cdc_core.rangefeed_values import Move
from cdc_core.store.job_values import JobState
from cdc_core.store.opening import open_engine
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.verbs import RULES, Verb

WRITTEN = Path(__file__).parents[1] / "store" / "written" / "v14.sql"
STATES: Mapping[str, JobState] = {
    **{state: state for state in get_args(JobState)},
    "altered": "pause-requested",
    "stopped": "paused",
    "held": "paused",
}
"""The states of the jobs in the store, by name; each has begun. `given` is being handed over, and `run` is no job."""
PLUGINS = host(
    rangefeed(options="cdc_testing.scripted:CounterOptions", changes_tables=True),
    encoder(),
    sink(options="cdc_testing.scripted:JournalOptions"),
)


def rows(engine: sa.Engine, *tables: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of the tables, as the older version knew them."""
    with engine.begin() as connection:
        return {
            table: [dict(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()]
            for table in tables
        }


def written(url: str) -> sa.Engine:
    engine = open_engine(url)
    number = "INTEGER NOT NULL" if engine.dialect.name == "sqlite" else "BIGSERIAL"
    with engine.begin() as connection:
        for statement in WRITTEN.read_text().replace("{number}", number).split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    return engine


def opened(url: str) -> Changefeeds:
    return Changefeeds(ProgressStore(url), plugins=PLUGINS, environ={"PAPER_PASSWORD": "hunter2"})


def test_what_is_there_stays_as_it_was(url: str, request: pytest.FixtureRequest) -> None:
    engine = written(url)
    request.addfinalizer(engine.dispose)
    kept = [f"cdc_{what}" for what in ("changefeeds", "jobs", "job_events", "events", "delivered", "dead_letters")]
    kept += ["cdc_rescans", "cdc_schedules", "cdc_traces"]
    before = rows(engine, *kept)
    changefeeds = opened(url)
    store = changefeeds.store
    jobs = {report.job.name: report.job for report in changefeeds.job_reports()}
    assert {name: job.state for name, job in jobs.items()} == {**STATES, "given": "canceled"}
    for table, wanted in rows(engine, *kept).items():
        keys = sorted(before[table][0].keys() & wanted[0].keys())
        now, then = (
            sorted(str([row[key] for key in keys]) for row in found if row["name"] != "run")
            for found in (wanted, before[table])
        )
        assert now == then, table
    for name in STATES:
        progress = store.progress.load(name)
        assert progress is not None, name
        assert store.planned_steps.load_plan(name) == {"step": progress.token["lsn"]}
        assert progress.counters["rows"] == 10 * progress.token["lsn"]
    assert (jobs["stopped"].paused_for, jobs["held"].paused_for) == ("stop", "error")
    assert jobs["held"].rests_for_error
    assert jobs["altered"].pending is not None
    assert jobs["given"].is_leaving
    assert [event.reason for event in store.jobs.events("paused")] == ["created", "adopted", "lunch", "lunch"]
    run = store.progress.load("run")
    assert run is not None
    assert run.token == {"lsn": 500}
    assert [letter.updated for letter in changefeeds.dead_letters("run")] == [Timestamp(6)]
    changefeeds.resume("run")
    assert store.changefeeds.begin_attempt("run") == 2
    schedules = {schedule.name: schedule for schedule in store.schedules.all()}
    assert (schedules["nightly"].next_run, schedules["weekly"].reason) == (2e9, "holidays")
    store.close()


def test_a_node_does_what_was_asked_of_nodes_of_the_older_version(url: str, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(written(url).dispose)
    changefeeds = opened(url)
    store = changefeeds.store
    two = store.nodes.join(node("two", "region=eu"), lease_s=86_400)
    store.claims.end_wait("waiting")
    states: dict[str, str | None] = {}
    for name in STATES:
        adopted = store.claims.adopt(name, two)
        known = changefeeds.known(name)
        if adopted is None:
            continue
        assert adopted.epoch == known.epoch == (3 if name == "waiting" else 2)
        assert adopted.clean == (name == "reverting")
        states[name] = store.claims.settle(name, two, "reverted" if adopted.state == "reverting" else "stopped")
    assert states == {
        "running": "running",
        "waiting": "running",
        "pause-requested": "paused",
        "altered": "running",
        "cancel-requested": "reverting",
        "reverting": "canceled",
    }
    altered = changefeeds.known("altered").definition
    assert altered["tables"] == ["public.counter", "public.more"]
    assert altered["written"]["options"]["diff"] is True
    assert store.rescans.initial_scans("altered") == {"public.more": False}
    assert store.rescans.waiting("paused", new_slot=False)
    store.close()


def move(on: Changefeeds, name: str) -> None:
    progress = on.store.progress.load(name)
    assert progress is not None
    target = Move(token={"lsn": 1}, before="2", after="1", forward=False, back=True)
    on.move(PlannedMove(name=name, move=target, saved=progress.token, epoch=on.known(name).epoch))


def forget(on: Changefeeds, name: str, verb: Verb) -> None:
    with on.dropping(name, feed=None, state_dir=Path("unused"), verb=verb) as planned:
        planned.carry_out()


ASKS: Mapping[Verb, Callable[[Changefeeds, str], object]] = {
    "pause": lambda on, name: on.pause(name, "now"),
    "stop": lambda on, name: on.pause(name, "now", "stop"),
    "resume": lambda on, name: on.resume(name),
    "restart": lambda on, name: on.restart(name, "now"),
    "alter": lambda on, name: on.alter(name, Alteration(set={"resolved": "1s"}), by="ann"),
    "cancel": lambda on, name: on.cancel(name, "now"),
    "drop": lambda on, name: forget(on, name, "drop"),
    "forget": lambda on, name: forget(on, name, "forget"),
    "rescan": lambda on, name: on.rescan(on.feed(name, on.known(name).definition), table=None),
    "move": move,
    "replay": lambda on, name: on.replay(name, state_dir=Path("unused")),
    "own": lambda on, name: on.set_owner(name, "bea"),
}


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the store, opened by this version, with a node."""
    directory = tmp_path_factory.mktemp("upgraded")
    written(store_url(directory)).dispose()
    store = ProgressStore(store_url(directory))
    store.nodes.join(node("two", "region=eu"), lease_s=86_400)
    store.close()
    return directory


@pytest.mark.parametrize("verb", RULES)
def test_every_verb_is_done_or_refused_as_in_a_new_store(
    upgraded: Path, tmp_path: Path, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CounterPlanner, "check_rescan", lambda _planner, _wanted: None)
    shutil.copytree(upgraded, tmp_path / "store")
    changefeeds = opened(store_url(tmp_path / "store"))
    for name, state in STATES.items():
        accepted = state in RULES[verb].does | RULES[verb].holds
        before = changefeeds.known(name), changefeeds.store.progress.load(name)
        with nullcontext() if accepted else pytest.raises(RefusedError):
            ASKS[verb](changefeeds, name)
        after = changefeeds.store.changefeeds.find(name)
        assert (after is None) == (accepted and verb in ("drop", "forget")), name
        if after is not None and not (accepted and verb == "move"):
            assert (after.feed_id, changefeeds.store.progress.load(name)) == (before[0].feed_id, before[1]), name
    if verb not in ("own", "replay"):  # of what has left, nothing is to be done here
        with pytest.raises(RefusedError, match="repeat `cdc create given"):
            ASKS[verb](changefeeds, "given")
    changefeeds.store.close()
