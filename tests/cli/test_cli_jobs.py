"""The commands for jobs, with a store in a file and nodes that only joined."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import DEFINITION, die, node, progress

from cdc_core.cli import run as run_module
from cdc_core.cli.main import main
from cdc_core.config.changefeed import Changefeed
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.job_tables import JOBS, DatabaseNow
from cdc_core.store.job_values import Ended, NodeRecord
from cdc_core.store.progress import DeadLetter, ProgressStore, store_url
from cdc_core.timestamp import Timestamp

Capture = pytest.CaptureFixture[str]
SCRIPTED = "cdc_testing.scripted:"


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = host(
        rangefeed(options=f"{SCRIPTED}CounterOptions", changes_tables=True),
        encoder(),
        encoder("lines"),
        sink(options=f"{SCRIPTED}JournalOptions"),
        sink("drawer", schemes=("drawer",), options=f"{SCRIPTED}JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)
    monkeypatch.setenv("LOGNAME", "ann")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressStore]:
    """The store that the environment names; it is not there yet."""
    monkeypatch.setenv("CDC_STORE", store_url(tmp_path / "nodes"))
    store = ProgressStore(store_url(tmp_path / "nodes"))
    yield store
    store.close()


@pytest.fixture
def file(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, with a reference in place of its secret."""
    monkeypatch.setenv("PAPER_PASSWORD", "hunter2")
    file.write_text(file.read_text().replace("hunter2", "${PAPER_PASSWORD}"))
    return file


def created(store: ProgressStore, name: str = "orders", *, locality: str = "") -> NodeRecord:
    """Have a node run a job; return the node."""
    living = [each for each in store.living_nodes() if each.name == "one"]
    one = living[0] if living else store.join(node("one", "region=eu"), lease_s=600)
    store.create_job(name, DEFINITION, owner="ann", locality=Locality.parse(locality))
    assert store.adopt(name, one) is not None
    return one


def ended(store: ProgressStore, how: Ended, name: str = "orders", reason: str | None = None) -> None:
    """Have the node of the job settle it."""
    one = next(each for each in store.living_nodes() if each.name == "one")
    store.settle(name, one, how, reason)
    if how == "failed":
        store.settle(name, one, "reverted", reason)


def done(capsys: Capture, *arguments: str, status: int = 0) -> str:
    """Return what a command printed."""
    assert main(list(arguments)) == status, capsys.readouterr().err
    printed = capsys.readouterr()
    return printed.out if status in (0, 1) and printed.out else printed.err


def as_json(capsys: Capture, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done(capsys, *arguments, "--json"))
    return found


def refused(capsys: Capture, *arguments: str) -> str:
    """Return the one sentence with which a command was refused."""
    [line] = done(capsys, *arguments, status=2).splitlines()
    return line.removeprefix("error: ")


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Do *action*, as a node would, while the block waits for it."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def until(look: Callable[[], bool]) -> None:
    while not look():
        pass


def test_a_changefeed_becomes_a_job(store: ProgressStore, file: Path, capsys: Capture) -> None:
    assert done(capsys, "create", str(file)) == (
        "job 'orders' is created, its owner is ann; no node that matches it is alive, and the first one that starts"
        " runs it\n"
    )
    found, known = store.find_job("orders"), store.find("orders")
    assert found is not None
    assert known is not None
    assert (found.state, found.owner) == ("running", "ann")
    assert "hunter2" not in json.dumps(known.definition)
    assert known.definition["written"]["source"] == "paper://user:${PAPER_PASSWORD}@desk/db"
    assert refused(capsys, "create", str(file)) == (
        "changefeed 'orders' is a job already (running); choose another name"
    )


def test_all_changefeeds_of_a_file_become_jobs_or_none(store: ProgressStore, file: Path, capsys: Capture) -> None:
    text = file.read_text()
    file.write_text(text + text.replace("orders", "users"))
    store.join(node("one"), lease_s=600)
    created(store, "users")
    assert "changefeed 'users' is a job already" in refused(capsys, "create", str(file))
    assert store.find_job("orders") is None
    ended(store, "succeeded", "users")
    assert done(capsys, "create", str(file), "--owner", "bob").splitlines() == [
        "job 'orders' is created, its owner is bob; a node will adopt it",
        "job 'users' is created, its owner is bob; a node will adopt it",
    ]


def test_a_pipeline_that_a_package_publishes_becomes_a_job(
    store: ProgressStore, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"control": str(tmp_path), "execution_locality": "region=eu"}
    orders = Changefeed(name="orders", source="paper://desk/db", tables=("t",), sink="shelf://room", options=options)
    monkeypatch.setattr(run_module, "pipeline_names", lambda: ["orders"])
    monkeypatch.setattr(run_module, "pipeline", lambda _name: orders)
    assert "no node matches execution_locality 'region=eu': no node is alive" in refused(capsys, "create", "orders")
    store.join(node("one", "region=eu"), lease_s=600)
    assert as_json(capsys, "create", "orders")["execution_locality"] == "region=eu"


def test_what_cannot_be_a_job_is_refused_and_nothing_is_created(
    store: ProgressStore, file: Path, capsys: Capture
) -> None:
    whole = file.read_text()
    file.write_text(whole.replace("${PAPER_PASSWORD}", "hunter2"))
    assert refused(capsys, "create", str(file)) == (
        "changefeed 'orders': 'source' has a secret in plain text, which the store does not keep; write it as"
        " ${VARIABLE} or ${file:PATH}, which is resolved on the node"
    )
    file.write_text(whole)
    (file.parent / "check").write_text("ConfigError table public.counter does not exist")
    assert refused(capsys, "create", str(file)) == "table public.counter does not exist"
    assert "is not a name of an owner" in refused(capsys, "create", str(file), "--owner", " ")
    assert store.find("orders") is None
    assert done(capsys, "create", str(file), "--no-check", "--owner", "bob")


def test_a_changefeed_that_cdc_run_left_is_continued_when_its_run_has_ended(
    store: ProgressStore, file: Path, capsys: Capture
) -> None:
    assert done(capsys, "create", str(file))
    whole = store.find("orders")
    assert whole is not None
    store.forget("orders")
    first = store.register("orders", whole.definition)
    epoch = store.begin_attempt("orders")
    store.save("orders", epoch, progress())
    store.save_status("orders", epoch, {"phase": "running", "host": "here", "pid": 7})
    assert refused(capsys, "create", str(file)) == (
        "changefeed 'orders' is running on here (process 7), by `cdc run`; stop it first, or wait half a minute if it"
        " was killed"
    )
    store.save_status("orders", epoch, {"phase": "stopped"})
    assert done(capsys, "create", str(file))
    known = store.find("orders")
    assert known is not None
    assert known.feed_id == first.feed_id
    assert store.load("orders") is not None


def test_jobs_are_listed_with_what_is_done_for_them(store: ProgressStore, capsys: Capture) -> None:
    store.open()
    assert done(capsys, "jobs") == f"there are no jobs in the store {store.shown}\n"
    created(store, "a")
    created(store, "b")
    store.pause_job("b", "maintenance")
    created(store, "c")
    ended(store, "failed", "c", "the slot\nis lost")
    store.create_job("d", DEFINITION, owner="bob", locality=Locality.parse("region=eu"))
    lines = done(capsys, "jobs").splitlines()
    assert lines[0].split() == ["name", "state", "node", "owner", "created", "started", "finished", "status"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["a", "running"],
        ["b", "pause-requested"],
        ["c", "failed"],
        ["d", "running"],
    ]
    assert [line.partition("Z  ")[2].rpartition("  ")[2] for line in lines[1:]] == [
        "starting on node one",
        "waiting for node one to stop it",
        "the slot is lost",
        "waiting for a node that matches region=eu",
    ]
    save(store, "a")
    shown = {each["name"]: each for each in map(json.loads, done(capsys, "jobs", "--json").splitlines())}
    assert shown["a"]["running_status"] == "running: resolved=1.0000000003"
    assert shown["a"]["node"] == "one"
    assert shown["c"]["reason"] == "the slot\nis lost"
    assert shown["c"]["finished"] is not None


def save(store: ProgressStore, name: str, **status: Any) -> None:
    """Save progress and a status of the job, as its run does."""
    found = store.find_job(name)
    assert found is not None
    store.save(name, found.epoch, progress())
    store.save_status(name, found.epoch, {"phase": "running", "host": "here", "pid": 7, **status})


def test_a_job_that_was_taken_over_shows_nothing_of_its_previous_run(store: ProgressStore, capsys: Capture) -> None:
    created(store)
    save(store, "orders", waiting_for="no route to db:5432")
    assert as_json(capsys, "jobs")["running_status"].startswith("running: ")
    two = store.join(node("two"), lease_s=600)
    ended(store, "stopped")
    assert store.adopt("orders", two) is not None
    assert as_json(capsys, "jobs")["running_status"] == "starting on node two"
    shown = done(capsys, "show", "orders")
    assert "starting on node two" in shown
    assert "no route to db" not in shown
    assert "last run          not heard from since" in shown
    save(store, "orders")
    assert as_json(capsys, "jobs")["running_status"].startswith("running: ")


def test_a_job_is_refused_by_run_before_spark_starts(
    store: ProgressStore, file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(capsys, "create", str(file))
    monkeypatch.setitem(sys.modules, "cdc_core.spark.runner", None)  # its import would fail
    assert refused(capsys, "run", str(file), "--state", store.url) == (
        "changefeed 'orders' is a job, which nodes run (running); see `cdc show orders`, or choose another name"
    )


def test_jobs_that_finished_long_ago_are_listed_on_request(store: ProgressStore, capsys: Capture) -> None:
    created(store)
    ended(store, "succeeded")
    with store._transaction() as connection:
        connection.execute(sa.update(JOBS).values(finished=DatabaseNow() - 13 * 3600))
    assert done(capsys, "jobs").endswith("; 1 finished earlier, see --all\n")
    assert done(capsys, "jobs", "--json") == ""
    assert as_json(capsys, "jobs", "--all")["state"] == "succeeded"


def test_a_job_waits_for_a_node_that_can_run_it(store: ProgressStore, capsys: Capture) -> None:
    one = store.join(node("one"), lease_s=600)
    two = store.join(node("two"), lease_s=600)
    store.create_job("orders", DEFINITION, owner="ann", locality=Locality())
    store.renew(one.node_id, lease_s=600, problems={"orders": "no sink 'kafka'"})
    assert as_json(capsys, "jobs")["running_status"] == "waiting for a node; one: no sink 'kafka'"
    assert "one cannot run job 'orders': no sink 'kafka'\n" in done(capsys, "nodes")
    assert store.adopt("orders", one) is not None
    store.settle("orders", one, "stopped", offer_to=two, offer_s=600)
    assert as_json(capsys, "jobs")["running_status"] == "waiting for node two to adopt it"


def test_a_job_is_shown_with_its_history(store: ProgressStore, capsys: Capture) -> None:
    created(store, locality="region=eu")
    save(store, "orders", waiting_for="no route to db:5432")
    lines = done(capsys, "show", "orders").splitlines()
    assert lines[:6] == [
        "job 'orders': running on node one",
        "  status            running: resolved=1.0000000003; retrying: no route to db:5432",
        "  owner             ann",
        "  locality          region=eu",
        "  last run          running on here (process 7)",
        "  source            postgresql://user:***@host:5432/shop: public.orders, public.users",
    ]
    assert lines[-2].startswith("  history           ")
    assert lines[-2].endswith(" UTC running: created")
    assert lines[-1].endswith(" UTC running, by node one: adopted")
    store.pause_job("orders", "maintenance")
    ended(store, "stopped")
    assert done(capsys, "show", "orders").startswith("job 'orders': paused: maintenance\n")
    shown = as_json(capsys, "show", "orders")
    assert (shown["state"], shown["job"]["owner"]) == ("paused", "ann")
    assert [(each["state"], each["reason"], each["node"]) for each in shown["job"]["history"]] == [
        ("running", "created", None),
        ("running", "adopted", "one"),
        ("pause-requested", "maintenance", None),
        ("paused", "maintenance", "one"),
    ]
    store.register("users", DEFINITION)
    every = done(capsys, "show")
    assert "job 'orders': paused" in every
    assert "changefeed 'users': has never run" in every


def test_a_job_is_paused_resumed_and_canceled(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)
    assert done(capsys, "pause", "orders", "--reason", "maintenance") == "job 'orders': node one will pause it\n"
    assert refused(capsys, "resume", "orders") == (
        "job 'orders' is pause-requested; only a paused job can be resumed; wait until it is paused"
    )
    ended(store, "stopped")
    assert done(capsys, "resume", "orders") == "job 'orders' is resumed; a node will adopt it\n"
    assert as_json(capsys, "pause", "orders")["reason"] == "asked for by ann"
    store.resume_job("orders")
    assert store.adopt("orders", one) is not None
    assert done(capsys, "cancel", "orders", "--yes") == "job 'orders': node one will cancel it\n"
    ended(store, "stopped")
    ended(store, "reverted")
    assert refused(capsys, "cancel", "orders", "--yes") == "job 'orders' is canceled and cannot be cancelled"
    assert [event.reason for event in store.job_events("orders")][2:6] == [
        "maintenance",
        "maintenance",
        "resumed",
        "asked for by ann",
    ]


def test_a_command_waits_until_a_node_has_done_it(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)

    def node_does(state: str, what: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            until(lambda: (found := store.find_job("orders")) is not None and found.state == state)
            what()

        return act

    with meanwhile(node_does("pause-requested", lambda: ended(store, "stopped"))):
        assert done(capsys, "pause", "orders", "--wait") == "job 'orders' is paused\n"
    with meanwhile(node_does("running", lambda: store.adopt("orders", one))):
        assert done(capsys, "resume", "orders", "--wait") == "job 'orders' is resumed; node one runs it\n"
    with meanwhile(node_does("pause-requested", lambda: ended(store, "failed", reason="the slot is lost"))):
        assert done(capsys, "pause", "orders", "--wait", status=1) == (
            "error: it was not paused: job 'orders' is failed: the slot is lost\n"
        )
    created(store)

    def cancel() -> None:
        ended(store, "stopped")
        ended(store, "reverted")

    with meanwhile(node_does("cancel-requested", cancel)):
        assert done(capsys, "cancel", "orders", "--yes", "--wait") == "job 'orders' is canceled\n"


def test_a_cancellation_must_be_confirmed(
    store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store)
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert "this must be confirmed" in refused(capsys, "cancel", "orders")
    found = store.find_job("orders")
    assert found is not None
    assert found.state == "running"


def test_nodes_are_listed_with_their_jobs(store: ProgressStore, capsys: Capture) -> None:
    store.open()
    assert "no node has joined the store" in done(capsys, "nodes")
    created(store)
    die(store, store.join(node("two"), lease_s=600))
    lines = done(capsys, "nodes").splitlines()
    assert lines[1].split()[:8] == ["one", "alive", "region=eu", "here", "1", "1", "of", "9"]
    assert lines[2].split()[:7] == ["two", "dead", "here", "1", "0", "of", "9"]
    shown = [json.loads(line) for line in done(capsys, "nodes", "--json").splitlines()]
    assert [(each["name"], each["state"], each["jobs"]) for each in shown] == [
        ("one", "alive", ["orders"]),
        ("two", "dead", []),
    ]


def test_a_node_is_drained(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)
    assert done(capsys, "drain", "one") == "node 'one' drains and ends\n"
    assert as_json(capsys, "nodes")["state"] == "draining"
    store.leave(one.node_id)

    def drained(end: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            until(lambda: store.living_nodes()[0].draining)
            end()

        return act

    two = store.join(node("two"), lease_s=600)
    with meanwhile(drained(lambda: store.leave(two.node_id))):
        assert done(capsys, "drain", "two", "--wait") == "node 'two' has ended\n"
    three = store.join(node("three"), lease_s=600)
    with meanwhile(drained(lambda: die(store, three))):
        assert "node 'three' has died while it drained" in done(capsys, "drain", "three", "--wait", status=1)
    assert "there is no living node 'three'" in refused(capsys, "drain", "three")


def test_a_job_gets_another_owner(store: ProgressStore, capsys: Capture) -> None:
    created(store)
    assert done(capsys, "owner", "orders", "bob") == "job 'orders' belongs to bob\n"
    assert as_json(capsys, "jobs")["owner"] == "bob"
    assert store.job_events("orders")[-1].reason == "the owner is bob now, and was ann"


@pytest.mark.parametrize("command", [["pause"], ["resume"], ["cancel", "--yes"], ["owner"], ["show"], ["alter"]])
def test_an_unknown_job_is_refused(store: ProgressStore, command: list[str], capsys: Capture) -> None:
    created(store)
    more = {"owner": ["bob"], "alter": ["--set", "diff=true"]}.get(command[0], [])
    told = refused(capsys, *command, "order", *more)
    assert "'order'" in told
    assert "did you mean 'orders'?" in told


@pytest.mark.parametrize(
    "command",
    [["create", "x.toml"], ["jobs"], ["pause", "x"], ["cancel", "x"], ["nodes"], ["drain", "x"], ["owner", "x", "y"]],
)
def test_a_store_must_be_named_and_none_is_created(
    command: list[str], file: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CDC_STORE", raising=False)
    command = [str(file) if word == "x.toml" else word for word in command]
    assert refused(capsys, *command) == "no store is given; use --store DIR|URL, or set CDC_STORE"
    if command[0] != "create":
        assert "there is no progress store" in refused(capsys, *command, "--store", str(tmp_path / "typo"))
    assert not (tmp_path / "typo").exists()


def test_a_store_out_of_reach_exits_with_2_without_its_password(capsys: Capture) -> None:
    told = refused(capsys, "jobs", "--store", "postgresql://cdc:swordfish@127.0.0.1:1/cdc")
    assert "progress store postgresql://cdc:***@127.0.0.1:1/cdc cannot be used" in told
    assert "swordfish" not in told


def test_a_file_is_still_a_file_with_a_store_in_the_environment(
    store: ProgressStore, file: Path, capsys: Capture
) -> None:
    created(store)
    beside = ProgressStore(store_url(file.parent / ".cdc"))
    beside.register("orders", DEFINITION)
    beside.pause("orders", beside.begin_attempt("orders"), "a row was refused")
    assert "changefeed 'orders': paused" in done(capsys, "show", str(file))
    assert as_json(capsys, "resume", str(file))["paused"] is None
    assert "is not a job, and no node adopts it" in refused(capsys, "resume", str(file), "--wait")
    assert "are for jobs" in refused(capsys, "alter", str(file), "--set", "diff=true")


def test_a_finished_job_is_dropped_and_any_other_canceled(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)
    assert refused(capsys, "drop", "orders", "--yes") == "job 'orders' is running; end it with `cdc cancel orders`"
    assert refused(capsys, "drop", "orders", "--yes", "--forget-only") == (
        "job 'orders' is running; end it with `cdc cancel orders`"
    )
    store.cancel_job("orders", "no longer needed")
    store.settle("orders", one, "stopped")
    store.settle("orders", one, "not reverted", "no route to db:5432")
    assert "try again with `cdc cancel orders`, or use --forget-only" in refused(capsys, "drop", "orders", "--yes")
    store.cancel_job("orders", "again")
    store.adopt("orders", one)
    store.settle("orders", one, "stopped")
    store.settle("orders", one, "reverted")
    assert "nothing is left at the source" in done(capsys, "drop", "orders", "--yes")
    assert store.find("orders") is None
    assert store.find_job("orders") is None


def test_a_job_is_named_without_its_file(store: ProgressStore, file: Path, capsys: Capture) -> None:
    assert done(capsys, "create", str(file))
    for command in (["rescan", "--all"], ["alter", "--add", "t"], ["drop", "--yes"], ["replay-dead-letters"]):
        told = refused(capsys, command[0], str(file), *command[1:], "--state", str(file.parent / "nodes"))
        assert told == (
            "changefeed 'orders' is a job, whose definition is in the store; name it without its file:"
            " --store DIR|URL orders"
        )


def test_a_job_is_rescanned_while_it_can_run(
    store: ProgressStore, file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CounterPlanner, "check_rescan", lambda _planner, _wanted: None)
    one = paused_job(store, file, capsys)
    assert "all tables will be emitted again" in done(capsys, "rescan", "orders", "--all")
    assert len(store.rescans("orders")) == 1
    store.resume_job("orders")
    assert "`cdc pause orders`" in refused(capsys, "rescan", "orders", "--all", "--new-slot")
    assert store.adopt("orders", one) is not None
    ended(store, "succeeded")
    assert refused(capsys, "rescan", "orders", "--all") == (
        "job 'orders' is succeeded; it has ended; create another job"
    )


def paused_job(store: ProgressStore, file: Path, capsys: Capture) -> NodeRecord:
    """Create the job of the file, have a node begin it, and pause it; return the node."""
    one = store.join(node("one"), lease_s=600)
    assert done(capsys, "create", str(file))
    adopted = store.adopt("orders", one)
    assert adopted is not None
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(5), stage="sink", error="no")
    store.save("orders", adopted.epoch, progress(), dead_letters=[letter])
    store.pause_job("orders", "maintenance")
    ended(store, "stopped")
    return one


def test_dead_letters_are_replayed_while_a_job_is_paused(store: ProgressStore, file: Path, capsys: Capture) -> None:
    one = paused_job(store, file, capsys)
    assert "[1]" in done(capsys, "replay-dead-letters", "orders", "--list")
    store.resume_job("orders")
    assert refused(capsys, "replay-dead-letters", "orders", "--give-up", "1") == (
        "job 'orders' is running; pause it first: `cdc pause orders`"
    )
    store.pause_job("orders", "maintenance")
    assert "0 dead letters remaining, 1 discarded" in done(capsys, "replay-dead-letters", "orders", "--give-up", "1")
    assert store.dead_letters("orders") == []
    store.resume_job("orders")
    assert store.adopt("orders", one) is not None
