"""A verb whose process is killed between any two statements has happened, or it has not: never a part of it."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.dead_letter_rig import Rig
from cdc_testing.engine import counter_feed
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import DEFINITION, node, progress

from cdc_core.changefeeds.moving import PlannedMove
from cdc_core.changefeeds.reading import Reading
from cdc_core.changefeeds.service import Alteration, Changefeeds
from cdc_core.config.definition import changefeed_of
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.locality import Locality
from cdc_core.rangefeed_values import Move
from cdc_core.store.job_values import JobState
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
ORDERS = changefeed_of(
    "orders",
    {"source": "paper://desk", "tables": ["public.counter"], "sink": "shelf://room", "options": {"control": "/unused"}},
    origin="the test",
    environ={},
)
WIDER = Alteration(add=["public.more"])
PLUGINS = host(
    rangefeed(options="cdc_testing.scripted:CounterOptions", changes_tables=True),
    encoder(),
    sink(options="cdc_testing.scripted:JournalOptions"),
)
READING = {
    *("check_continuing", "check_new", "dead_letter_rows", "dead_letters", "diagnose", "feed", "find_job"),
    *("identities", "known", "last_definition", "moving", "plan_move", "positions", "preview", "require_job"),
    *("require_not_run", "resolved", "schema_of", "schedule", "schedules", "trace", "traces", "wait", "wait_for_end"),
    *(name for name in vars(Reading) if not name.startswith("_")),
}
"""The methods of the service that change no store."""


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


def service(store: ProgressStore) -> Changefeeds:
    return Changefeeds(store, plugins=PLUGINS, environ={})


def prepared(directory: Path, state: JobState | None) -> ProgressStore:
    """Return a store with a changefeed that has begun: a job in *state*, or none; a node; and a schedule."""
    store = ProgressStore(store_url(directory))
    one = store.nodes.join(node("one"), lease_s=86_400)
    changefeeds = service(store)
    changefeeds.create_schedule(NIGHTLY)
    definition = changefeeds.resolved(ORDERS).definition()
    if state is None:
        epoch = store.changefeeds.begin_attempt(store.changefeeds.register("orders", definition).name)
        store.progress.save("orders", epoch, progress())
        store.claims.pause_run("orders", epoch, "the sink refuses")
        return store
    store.jobs.create("orders", definition, owner="ann", locality=Locality())
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    store.progress.save("orders", adopted.epoch, progress())
    if state == "paused":
        changefeeds.ask_trace("orders", table=None, key=None)
        changefeeds.pause("orders", "lunch")
        changefeeds.pause_schedule("nightly", "holidays")
        store.claims.settle("orders", one, "stopped")
    elif state == "succeeded":
        store.claims.settle("orders", one, "succeeded")
    return store


def forget(changefeeds: Changefeeds) -> None:
    with changefeeds.dropping("orders", feed=None, state_dir=Path("unused"), verb="forget") as planned:
        planned.carry_out()


def create(changefeeds: Changefeeds) -> None:
    changefeeds.create(changefeeds.resolved(replace(ORDERS, name="carts")), owner="ann", connect=False)


def alter(changefeeds: Changefeeds) -> None:
    changefeeds.alter("orders", WIDER, by="ann", scans=False)


def redefine(changefeeds: Changefeeds) -> None:
    before = changefeeds.known("orders").definition
    after = changefeeds.resolved(replace(ORDERS, tables=("public.counter", "public.more")))
    changefeeds.redefine("orders", after, before=before, why="wider")


def alter_run(changefeeds: Changefeeds) -> None:
    changefeeds.alter_run(ORDERS, WIDER, state_dir=directory_of(changefeeds.store), by="ann", scans=False)


def begun(changefeeds: Changefeeds) -> ResolvedChangefeed:
    return changefeeds.feed("orders", changefeeds.known("orders").definition)


def directory_of(store: ProgressStore) -> Path:
    file = sqlite_file(store.url)
    assert file is not None
    return file.parent


def end_trace(changefeeds: Changefeeds) -> None:
    [trace] = changefeeds.traces("orders")
    changefeeds.end_trace("orders", trace.number)


VERBS: dict[str, tuple[JobState | None, Callable[[Changefeeds], object]]] = {
    "create": ("running", create),
    "alter what runs": ("running", alter),
    "alter what rests": ("paused", alter),
    "redefine": ("paused", redefine),
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
    "resume a schedule": ("paused", lambda on: on.resume_schedule("nightly")),
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
        ask(service(whole))
    after = contents(whole)
    assert before != after
    assert statements[-1] == "COMMIT"
    for at in range(len(statements)):
        store = copied(f"killed-{at}")
        with pytest.raises(Killed), killed(store, at):
            ask(service(store))
        assert contents(store) in (before, after), f"killed before {statements[at]}"
        store.close()
    whole.close()


def drop(changefeeds: Changefeeds, feed: ResolvedChangefeed) -> None:
    state_dir = directory_of(changefeeds.store)
    with changefeeds.dropping(feed.name, feed=feed, state_dir=state_dir) as planned:
        planned.carry_out()


def test_a_drop_that_is_killed_can_be_repeated_wherever_that_was(tmp_path: Path) -> None:
    """The source is another system: its slot and its store's rows cannot go at the same moment."""
    feed = counter_feed(tmp_path)
    store = ProgressStore(store_url(tmp_path))
    store.changefeeds.register(feed.name, feed.definition())
    store.progress.save(feed.name, store.changefeeds.begin_attempt(feed.name), progress())
    for statement in killed_in_turn(store, lambda: drop(Changefeeds(store), feed)):
        assert store.changefeeds.find(feed.name) is not None, f"killed before {statement}"
        assert store.progress.load(feed.name) is not None
    assert store.changefeeds.find(feed.name) is None
    store.close()


def replay(changefeeds: Changefeeds, rig: Rig, give_up: Collection[int]) -> None:
    changefeeds.replay("t", state_dir=rig.directory, feed=rig.feed(), give_up=give_up)


@pytest.mark.parametrize("given_up", [0, 1, 2])
@pytest.mark.parametrize("is_job", [True, False])
def test_a_replay_that_is_killed_can_be_repeated_wherever_that_was(
    tmp_path: Path, *, is_job: bool, given_up: int
) -> None:
    """The sink is another system: until the store knows that a row was sent, the row is a dead letter."""
    rig = Rig(tmp_path)
    rig.refuse(7, 8)
    rig.complete()
    rig.correct()
    store, changefeeds = rig.store, Changefeeds(rig.store)
    if is_job:
        store.jobs.create("t", rig.feed().definition(), owner="ann", locality=Locality(), paused_for="pause")
    letters = changefeeds.dead_letters("t")
    give_up = [letter.number for letter in letters[:given_up]]
    for statement in killed_in_turn(store, lambda: replay(changefeeds, rig, give_up)):
        assert len(changefeeds.dead_letters("t")) == 2, f"killed before {statement}"
    assert changefeeds.dead_letters("t") == []
    assert {7, 8} & {*rig.delivered()} == {letter.updated.wall for letter in letters[given_up:]}
    [event] = store.events.read("t", kinds=["dead_letters_replayed"])
    assert event.details == {"count": 2 - given_up, "discarded": given_up}


def continue_run(changefeeds: Changefeeds, left: ProgressStore, feed: ResolvedChangefeed) -> None:
    changefeeds.continue_run(feed, left, directory_of(left), again="cdc create FILE --from-state", owner="ann")


def test_a_hand_over_that_is_killed_can_be_repeated_wherever_that_was(tmp_path: Path) -> None:
    """The progress is in two stores meanwhile: never do runs have it in one, and a job in the other."""
    left, here = (ProgressStore(store_url(tmp_path / name)) for name in ("left", "here"))
    changefeeds = service(here)
    feed = changefeeds.resolved(ORDERS)
    known = left.changefeeds.register("orders", feed.definition())
    left.progress.save("orders", left.changefeeds.begin_attempt("orders"), progress())

    def hand_over() -> None:
        for _ in killed_in_turn(here, lambda: continue_run(changefeeds, left, feed)):
            assert here.jobs.find("orders") is None

    for _ in killed_in_turn(left, hand_over):
        given = left.jobs.find("orders")
        assert here.jobs.find("orders") is None or (given is not None and given.has_left)
    found, given = here.changefeeds.find("orders"), left.jobs.find("orders")
    assert found is not None
    assert found.feed_id == known.feed_id
    assert here.progress.load("orders") == left.progress.load("orders")
    assert given is not None
    assert given.has_left
    assert not given.is_leaving
    for store in (left, here):
        store.close()


def killed_in_turn(store: ProgressStore, ask: Callable[[], object]) -> Iterator[str]:
    """Ask again and again, each time killed before the next statement, which is yielded, until that ends by itself."""
    for at in range(200):
        try:
            with killed(store, at) as statements:
                ask()
        except Killed:
            yield statements[-1]
        else:
            return
    raise AssertionError("a verb has less than 200 statements")


def test_every_method_that_writes_is_killed() -> None:
    methods = {name for name, _ in inspect.getmembers(Changefeeds, inspect.isfunction) if not name.startswith("_")}
    asks = [drop, replay, continue_run, *(ask for _, ask in VERBS.values())]
    killed_here = {name for ask in asks for name in ask.__code__.co_names}
    assert methods - killed_here <= READING
    assert methods >= READING
    for name in READING:
        assert ".transaction()" not in inspect.getsource(getattr(Changefeeds, name)), name
