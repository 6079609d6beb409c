"""A verb whose process is killed between any two statements has happened, or it has not: never a part of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core.changefeeds.altering import configure, configure_run
from cdc_core.changefeeds.moving import PlannedMove
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.locality import Locality
from cdc_core.move import Move
from cdc_core.store.job_values import JobState, Pending
from cdc_core.store.opening import sqlite_file, store_url
from cdc_core.store.progress import ProgressStore
from cdc_core.store.schedule_values import ScheduleRecord
from cdc_core.store.tables import METADATA

TIMES = {"at", "created", "started", "finished", "next_run", "asked_at", "created_at", "expires", "feed_id", "last_at"}
"""Columns with the time at which a verb was asked, or a random text."""
NIGHTLY = ScheduleRecord(
    name="nightly", definition=DEFINITION, locality=Locality(), owner="ann", cron="0 0 1 1 *", time_zone="UTC"
)
MOVE = PlannedMove(
    name="orders",
    move=Move(token={"n": 60}, before="50", after="60", forward=True, back=False),
    saved=progress().token,
    epoch=1,
)
WIDER = DEFINITION | {"tables": [*DEFINITION["tables"], "public.more"]}


class Killed(BaseException):
    """In place of SIGKILL: nothing but the database's own rollback comes after it."""


@contextmanager
def killed(store: ProgressStore, at: int | None = None) -> Iterator[list[str]]:
    """Count the writing statements and commits of the block, and end it before the one with the number *at*."""
    seen: list[str] = []

    def count(what: str) -> None:
        if what.startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
            seen.append(what)
            if len(seen) - 1 == at:
                raise Killed

    store.open()
    engine = store._database._opened()
    listeners: Mapping[str, Callable[..., None]] = {
        "before_cursor_execute": lambda *arguments: count(arguments[2]),
        "commit": lambda _: count("COMMIT"),
    }
    for event, listener in listeners.items():
        sa.event.listen(engine, event, listener)
    try:
        yield seen
    finally:
        for event, listener in listeners.items():
            sa.event.remove(engine, event, listener)


def contents(store: ProgressStore) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all tables, without the times."""
    with store.transaction(reading=True) as connection:
        return {
            table.name: [
                {name: value for name, value in row.items() if name not in TIMES}
                for row in connection.execute(sa.select(table).order_by(*table.primary_key)).mappings()
            ]
            for table in METADATA.sorted_tables
        }


def prepared(directory: Path, state: JobState | None) -> ProgressStore:
    """Return a store with a changefeed that has begun: a job in *state*, or none; a node; and a schedule."""
    store = ProgressStore(store_url(directory))
    one = store.nodes.join(node("one"), lease_s=86_400)
    changefeeds = Changefeeds(store)
    changefeeds.create_schedule(NIGHTLY)
    if state is None:
        epoch = store.changefeeds.begin_attempt(store.changefeeds.register("orders", DEFINITION).name)
        store.progress.save("orders", epoch, progress())
        store.changefeeds.pause("orders", epoch, "the sink refuses")
        return store
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    store.progress.save("orders", adopted.epoch, progress())
    if state == "paused":
        changefeeds.ask_trace("orders", table=None, key=None)
        changefeeds.pause("orders", "lunch")
        store.claims.settle("orders", one, "stopped")
    elif state == "succeeded":
        store.claims.settle("orders", one, "succeeded")
    return store


def forget(changefeeds: Changefeeds) -> None:
    with changefeeds.dropping("orders", feed=None, state_dir=Path("unused"), verb="forget") as planned:
        planned.carry_out()


def create(changefeeds: Changefeeds) -> None:
    feed = replace(counter_feed(Path("unused")), name="carts", stored={"literal_secrets": []})
    changefeeds.create(feed, owner="ann", connect=False)


def alter(changefeeds: Changefeeds) -> None:
    wanted = Pending(definition=WIDER, locality=Locality(), initial_scans={"public.more": False}, why="altered")
    configure(changefeeds.store, "orders", wanted, before=DEFINITION)


def begun(changefeeds: Changefeeds) -> ResolvedChangefeed:
    file = sqlite_file(changefeeds.store.url)
    assert file is not None
    return counter_feed(file.parent, name="orders")


def end_trace(changefeeds: Changefeeds) -> None:
    [trace] = changefeeds.traces("orders")
    changefeeds.end_trace("orders", trace.number)


def alter_run(changefeeds: Changefeeds) -> None:
    known = changefeeds.known("orders")
    configure_run(changefeeds.store, known, WIDER, initial_scans={"public.more": False}, why="altered")


VERBS: dict[str, tuple[JobState | None, Callable[[Changefeeds], object]]] = {
    "create": ("running", create),
    "alter what runs": ("running", alter),
    "alter what rests": ("paused", alter),
    "alter a run": (None, alter_run),
    "pause": ("running", lambda on: on.pause("orders", "lunch")),
    "stop": ("paused", lambda on: on.pause("orders", "lunch", "stop")),
    "resume": ("paused", lambda on: on.resume("orders")),
    "resume a run": (None, lambda on: on.resume("orders")),
    "restart": ("running", lambda on: on.restart("orders", "again")),
    "cancel": ("running", lambda on: on.cancel("orders", "over")),
    "delete what runs": ("running", lambda on: on.delete("orders", "over")),
    "delete what has ended": ("succeeded", lambda on: on.delete("orders", "over")),
    "rescan": ("running", lambda on: on.rescan(begun(on), table=None)),
    "begin anew": ("paused", lambda on: on.begin_anew(begun(on))),
    "trace": ("running", lambda on: on.ask_trace("orders", table=None, key=None)),
    "end a trace": ("paused", end_trace),
    "own": ("running", lambda on: on.set_owner("orders", "bea")),
    "move": ("paused", lambda on: on.move(MOVE, "asked for")),
    "forget": ("succeeded", forget),
    "drain": ("running", lambda on: on.drain("one")),
    "create a schedule": ("running", lambda on: on.create_schedule(replace(NIGHTLY, name="weekly"))),
    "pause a schedule": ("running", lambda on: on.pause_schedule("nightly", "holidays")),
    "drop a schedule": ("running", lambda on: on.drop_schedule("nightly")),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_leaves_what_was_before_the_verb_or_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(CounterPlanner, "check_rescan", lambda _planner, _wanted: None)
    state, ask = VERBS[verb]
    template = prepared(tmp_path / "template", state)
    before = contents(template)
    template.close()

    def copied(name: str) -> ProgressStore:
        shutil.copytree(tmp_path / "template", tmp_path / name)
        return ProgressStore(store_url(tmp_path / name))

    whole = copied("whole")
    with killed(whole) as statements:
        ask(Changefeeds(whole))
    after = contents(whole)
    assert before != after
    assert statements[-1] == "COMMIT"
    for at in range(len(statements)):
        store = copied(f"killed-{at}")
        with pytest.raises(Killed), killed(store, at):
            ask(Changefeeds(store))
        assert contents(store) in (before, after), f"killed before {statements[at]}"
        store.close()
    whole.close()


def test_a_drop_that_is_killed_can_be_repeated_wherever_that_was(tmp_path: Path) -> None:
    """The source is another system: its slot and its store's rows cannot go at the same moment."""
    feed = counter_feed(tmp_path)

    def drop(store: ProgressStore) -> None:
        with Changefeeds(store).dropping(feed.name, feed=feed, state_dir=tmp_path) as planned:
            planned.carry_out()

    for at in range(100):
        store = ProgressStore(store_url(tmp_path / str(at)))
        store.changefeeds.register(feed.name, feed.definition())
        store.progress.save(feed.name, store.changefeeds.begin_attempt(feed.name), progress())
        with killed(store, at) as statements:
            try:
                drop(store)
            except Killed:
                assert store.changefeeds.find(feed.name) is not None, f"killed before {statements[-1]}"
                assert store.progress.load(feed.name) is not None
                drop(store)
        assert store.changefeeds.find(feed.name) is None
        if len(statements) <= at:
            return
    raise AssertionError("a drop has less than 100 statements")
