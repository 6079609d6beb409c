"""`cdc create`: what becomes a job, and what cannot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created, ended
from cdc_testing.scripted import CounterRangefeed, read_journal
from cdc_testing.stored import DEFINITION, ask_rescan, dropped, node, progress

from cdc_core import RetryableError, Timestamp
from cdc_core.cli import located
from cdc_core.cli.main import main
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.engine.fencing import RunLock
from cdc_core.errors import TerminalRangefeedError
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store import deletion, handover
from cdc_core.store.handover import Handover, Kept
from cdc_core.store.jobs import Jobs
from cdc_core.store.progress import DeadLetter, ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


def test_a_changefeed_becomes_a_job(store: ProgressStore, file: Path, cdc: Cdc) -> None:
    assert cdc("create", file).out == (
        "job 'orders' is created and owned by ann; no matching node is alive; the first one to start will run it\n"
    )
    found, known = store.jobs.find("orders"), store.changefeeds.find("orders")
    assert found is not None
    assert known is not None
    assert (found.state, found.owner) == ("running", "ann")
    assert "hunter2" not in json.dumps(known.definition)
    assert known.definition["written"]["source"] == "paper://user:${PAPER_PASSWORD}@desk/db"
    assert cdc.sentence("create", file) == ("changefeed 'orders' is already a job (running); choose another name")


def test_all_changefeeds_of_a_file_become_jobs_or_none(store: ProgressStore, file: Path, cdc: Cdc) -> None:
    text = file.read_text()
    file.write_text(text + text.replace("orders", "users"))
    store.nodes.join(node("one"), lease_s=600)
    created(store, "users")
    assert "changefeed 'users' is already a job" in cdc.sentence("create", file)
    assert store.jobs.find("orders") is None
    ended(store, "succeeded", "users")
    assert cdc("create", file, "--owner", "bob").out.splitlines() == [
        "job 'orders' is created and owned by bob; a node will adopt it",
        "job 'users' is created and owned by bob; a node will adopt it",
    ]


def test_a_pipeline_that_a_package_publishes_becomes_a_job(
    store: ProgressStore, tmp_path: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"control": str(tmp_path), "execution_locality": "region=eu"}
    orders = Changefeed(name="orders", source="paper://desk/db", tables=("t",), sink="shelf://room", options=options)
    monkeypatch.setattr(located, "pipeline_names", lambda: ["orders"])
    monkeypatch.setattr(located, "pipeline", lambda _name: orders)
    assert "no node matches execution_locality 'region=eu': no node is alive" in cdc.sentence("create", "orders")
    store.nodes.join(node("one", "region=eu"), lease_s=600)
    assert cdc.json("create", "orders")["execution_locality"] == "region=eu"


def test_what_cannot_be_a_job_is_refused_and_nothing_is_created(store: ProgressStore, file: Path, cdc: Cdc) -> None:
    whole = file.read_text()
    file.write_text(whole.replace("${PAPER_PASSWORD}", "hunter2"))
    assert cdc.sentence("create", file) == (
        "changefeed 'orders': 'source' has a secret in plain text, which the store does not keep; write it as"
        " ${VARIABLE} or ${file:PATH}, which is resolved on the node"
    )
    file.write_text(whole)
    (file.parent / "check").write_text("ConfigError table public.counter does not exist")
    assert cdc.sentence("create", file) == "table public.counter does not exist"
    (file.parent / "check").write_text("TerminalError history is lost; drop it with `cdc drop FILE NAME`")
    assert cdc.sentence("create", file) == f"history is lost; drop it with `cdc drop {file} orders`"
    assert "is not a valid owner" in cdc.sentence("create", file, "--owner", " ")
    assert store.changefeeds.find("orders") is None
    assert cdc("create", file, "--no-check", "--owner", "bob").out


def test_a_changefeed_that_cdc_run_left_is_continued_when_its_run_has_ended(
    store: ProgressStore, file: Path, cdc: Cdc
) -> None:
    assert cdc("create", file).out
    whole = store.changefeeds.find("orders")
    assert whole is not None
    dropped(store, "orders")
    first = store.changefeeds.register("orders", whole.definition)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, progress())
    store.statuses.save("orders", epoch, {"phase": "running", "host": "here", "pid": 7})
    assert cdc.sentence("create", file) == (
        "changefeed 'orders' is being run by `cdc run` on here (process 7); stop it first, or wait half a minute if "
        "it was killed"
    )
    store.statuses.save("orders", epoch, {"phase": "stopped"})
    assert cdc("create", file).out
    known = store.changefeeds.find("orders")
    assert known is not None
    assert known.feed_id == first.feed_id
    assert store.progress.load("orders") is not None


@pytest.mark.parametrize("more", [[], ["--no-check"]])
def test_a_changefeed_that_cdc_run_left_in_another_store_is_refused(
    more: list[str], store: ProgressStore, file: Path, cdc: Cdc
) -> None:
    with closing(ProgressStore(store_url(file.parent / ".cdc"))) as own:
        own.open()
        own.changefeeds.register("orders", resolve(read_changefeed(file, None), PluginHost.load()).definition())
        assert cdc("create", file, *more).out  # its run never began
        dropped(store, "orders")
        own.progress.save("orders", own.changefeeds.begin_attempt("orders"), progress())
        assert cdc.sentence("create", file, *more) == (
            f"changefeed 'orders' has progress in {own.shown} that a job in {store.shown} would not use; run"
            f" `cdc create {file} orders --from-state` to move it, or `cdc drop {file} orders` to start again"
        )
        assert store.changefeeds.find("orders") is None
        assert cdc("create", file, *more, "--store", ".cdc").out
        assert own.jobs.find("orders") is not None
        assert own.progress.load("orders") is not None


@pytest.fixture
def left(file: Path) -> Iterator[ProgressStore]:
    """The store of a run that has ended: it has delivered rows, refused one, and is to read a table again."""
    with closing(ProgressStore(store_url(file.parent / ".cdc"))) as left:
        left.changefeeds.register("orders", resolve(read_changefeed(file, None), PluginHost.load()).definition())
        epoch = left.changefeeds.begin_attempt("orders")
        left.progress.save("orders", epoch, progress(), dead_letters=[LETTER])
        left.statuses.save("orders", epoch, {"phase": "stopped"})
        ask_rescan(left, "orders", table="shop.public.orders", where="id > 7")
        yield left


LETTER = DeadLetter(table="t", key="[1]", updated=Timestamp(5), stage="sink", error="no")


def test_the_progress_of_a_run_moves_to_its_job_and_no_run_continues_it(
    store: ProgressStore, left: ProgressStore, file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rescan = left.changefeeds.find("orders"), left.rescans.of("orders")[0]
    assert before is not None
    assert cdc("create", file, "--from-state").out.startswith("job 'orders' is created and owned by ann;")
    found = store.changefeeds.find("orders")
    assert found is not None
    assert (found.feed_id, found.epoch) == (before.feed_id, before.epoch + 1), "the run that has ended is fenced"
    assert store.progress.load("orders") == left.progress.load("orders")
    assert [letter.error for letter in store.dead_letters.of("orders")] == ["no"]
    assert [replace(each, number=rescan.number) for each in store.rescans.of("orders")] == [rescan]
    monkeypatch.setitem(sys.modules, "cdc_core.spark.runner", None)  # its import would fail
    moved = f"its progress was handed over to job 'orders' of the store {store.shown}"
    assert cdc.sentence("run", file) == (
        f"changefeed 'orders' was a job and has ended (canceled): {moved}; see `cdc show orders`, or choose another"
        " name"
    )
    assert moved in cdc("show", file).out
    assert "is already a job (running)" in cdc.sentence("create", file)
    assert moved in cdc.sentence("create", file, "--from-state", "--store", "third")
    beside = ["orders", "--store", str(file.parent / ".cdc")]
    assert f"{moved}; use that job instead" in cdc.sentence("replay-dead-letters", *beside)
    told = cdc("drop", *beside, "--yes").out
    assert "nothing is changed at the source" in told
    assert ["drop"] not in read_journal(file.parent), "the job has what is at the source"


@pytest.mark.parametrize("more", [[], ["--no-check"]])
def test_a_run_whose_progress_cannot_move_is_left_as_it_is(
    more: list[str], store: ProgressStore, left: ProgressStore, file: Path, cdc: Cdc
) -> None:
    def told(*arguments: str) -> str:
        text = cdc.sentence("create", file, *more, *arguments)
        assert left.jobs.find("orders") is None
        return text

    assert "there is no progress store of a run in " in told("--from-state", "elsewhere")
    assert "/elsewhere.sqlite; name its store" in told("--from-state", "sqlite:////elsewhere.sqlite")
    out_of_reach = told("--from-state", "postgresql://cdc:swordfish@127.0.0.1:1/cdc")
    assert "progress store postgresql://cdc:***@127.0.0.1:1/cdc cannot be used" in out_of_reach
    assert "the progress store's URL cannot be used" in told("--from-state", "postgresql://h:port/cdc")
    assert "changefeed 'orders' is not in the progress store" in told("--from-state", store.url)
    with RunLock(file.parent / ".cdc" / "orders.lock") as lock:
        assert lock.acquire()
        assert "changefeed 'orders' is running from " in told("--from-state")
    whole = file.read_text()
    file.write_text(f'{whole}execution_locality = "region=eu"\n')
    assert "no node matches execution_locality 'region=eu'" in told("--from-state")
    file.write_text(f"{whole}end_time = 1\n".replace("end_time = 1", f'end_time = "{Timestamp(1)}"'))
    assert "changefeed 'orders' is complete in " in told("--from-state")
    file.write_text(whole.replace("orders", "order"))
    assert "changefeed 'order' is not in the progress store" in told("--from-state")
    file.write_text(whole)
    left.statuses.save(
        "orders", left.changefeeds.begin_attempt("orders"), {"phase": "running", "host": "far", "pid": 7}
    )
    assert "changefeed 'orders' is being run by `cdc run` on far (process 7)" in told("--from-state")


@contextmanager
def at_creation(action: Callable[[], object]) -> Iterator[None]:
    """Do *action* in the block once, when a job is about to be created."""
    original = Jobs.create

    def create(jobs: Jobs, *arguments: Any, **given: Any) -> Any:
        patch.undo()
        action()
        return original(jobs, *arguments, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Jobs, "create", create)
        yield


def stop_with(error: BaseException) -> Callable[[], object]:
    def stop() -> None:
        raise error

    return stop


def test_a_store_that_was_out_of_reach_gets_the_progress_when_it_is_asked_again(
    store: ProgressStore, left: ProgressStore, file: Path, capsys: Capture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_creation(stop_with(RetryableError("out of reach"))):
        assert main(["create", str(file), "--from-state", "--store", store.url]) == 1
        assert "out of reach; repeat this command; until it succeeds, changefeed" in capsys.readouterr().err
    again = f"repeat `cdc create {file} orders --store {store.url} --from-state`"
    beside = str(file.parent / ".cdc")
    for command in (
        ["run", str(file)],
        ["create", str(file)],
        ["create", str(file), "--store", beside],
        ["create", str(file), "--from-state", "--store", "third"],
        ["drop", "orders", "--yes", "--store", beside],
        ["drop", "orders", "--yes", "--forget-only", "--store", beside],
        ["replay-dead-letters", "orders", "--store", beside],
        ["cancel", "orders", "--yes", "--store", beside],
    ):
        assert again in cdc.sentence(*command)
    assert left.claims.prune(retention_s=-60.0) == []
    monkeypatch.chdir(file.parent)
    assert cdc("create", file, "--store", "sqlite:///nodes/../nodes/progress.sqlite", "--from-state").out
    assert store.progress.load("orders") == left.progress.load("orders")
    assert left.claims.prune(retention_s=-60.0) == ["orders"]


def test_what_moved_before_an_interrupt_is_skipped_when_a_file_is_moved_again(
    store: ProgressStore, left: ProgressStore, file: Path, capsys: Capture, cdc: Cdc
) -> None:
    text = file.read_text()
    file.write_text(text + text.replace("orders", "users"))
    left.changefeeds.register("users", resolve(read_changefeed(file, "users"), PluginHost.load()).definition())
    left.progress.save("users", left.changefeeds.begin_attempt("users"), progress())
    with at_creation(lambda: main(["create", str(file), "orders", "--from-state"])):  # a second one, and it is faster
        assert "is already a job" in cdc("create", file, "--from-state", status=2).err
    given = left.jobs.find("orders")
    assert given is not None
    assert given.has_left, "its job has it, so no run may continue it"
    with at_creation(stop_with(KeyboardInterrupt())):
        main(["create", str(file), "--from-state"])
    users = left.jobs.find("users")
    assert users is not None
    assert users.is_leaving
    capsys.readouterr()
    first, second = cdc("create", file, "--from-state").out.splitlines()
    assert first == "job 'orders' already has the progress of its run"
    assert second.startswith("job 'users' is created")
    for name in ("orders", "users"):
        known, before = store.changefeeds.find(name), left.changefeeds.find(name)
        assert known is not None
        assert before is not None
        assert known.feed_id == before.feed_id


def test_a_run_continues_when_its_hand_over_was_killed_and_is_then_refused(
    store: ProgressStore, left: ProgressStore, file: Path, capsys: Capture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_creation(stop_with(KeyboardInterrupt())):
        main(["create", str(file), "--from-state"])
    capsys.readouterr()

    def check(_rangefeed: CounterRangefeed) -> None:
        raise TerminalRangefeedError("no such table")

    with monkeypatch.context() as patch:
        patch.setattr(CounterRangefeed, "check", check)
        told = cdc.sentence("create", file, "--from-state")
    assert "no such table; its progress is being handed over, and the changefeed cannot run until this command" in told
    assert "perhaps with --no-check" in told
    whole = file.read_text()
    file.write_text(f'{whole}execution_locality = "region=eu"\n')
    assert "no node matches execution_locality 'region=eu'" in cdc.sentence("create", file, "--from-state")
    assert left.jobs.find("orders") is None


@pytest.mark.parametrize("meanwhile", ["a job", "a run"])
def test_a_run_continues_when_its_hand_over_was_killed_and_the_name_is_taken_then(
    store: ProgressStore, left: ProgressStore, file: Path, capsys: Capture, cdc: Cdc, meanwhile: str
) -> None:
    with at_creation(stop_with(KeyboardInterrupt())):
        main(["create", str(file), "--from-state"])
    capsys.readouterr()
    if meanwhile == "a job":
        store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    else:
        store.changefeeds.register("orders", DEFINITION)
        epoch = store.changefeeds.begin_attempt("orders")
        store.statuses.save("orders", epoch, {"phase": "running", "host": "far", "pid": 7})
    told = cdc("create", file, "--from-state", status=2).err
    assert ("is already a job" if meanwhile == "a job" else "was also started in this store") in told
    assert left.jobs.find("orders") is None
    assert left.jobs.runs() == ["orders"]


def test_a_hand_over_that_froze_does_nothing_after_a_later_one_was_refused(
    store: ProgressStore, left: ProgressStore, file: Path, cdc: Cdc
) -> None:
    whole = file.read_text()

    def refused_meanwhile() -> None:
        file.write_text(f'{whole}execution_locality = "region=eu"\n')
        assert main(["create", str(file), "--from-state"]) == 2

    with at_creation(refused_meanwhile):
        told = cdc("create", file, "--from-state", status=2).err
    assert (
        "another command is handing over changefeed 'orders'; run this command again when that one has finished" in told
    )
    assert (left.jobs.find("orders"), store.jobs.find("orders"), store.changefeeds.find("orders")) == (None, None, None)


def test_a_repetition_is_refused_when_the_first_one_has_given_the_run_back(
    store: ProgressStore, left: ProgressStore, file: Path, capsys: Capture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_creation(stop_with(RetryableError("out of reach"))):
        assert main(["create", str(file), "--from-state"]) == 1
    capsys.readouterr()
    give = Handover.give

    def late(handover: Handover, name: str, **given: Any) -> Kept:
        left.handover.take_back("orders", give(left.handover, name, **{**given, "repeated": False}))
        return give(handover, name, **given)

    monkeypatch.setattr(Handover, "give", late)
    assert "was taken back in the meantime; repeat `cdc create " in cdc.sentence("create", file, "--from-state")
    assert left.jobs.find("orders") is None
    assert store.jobs.find("orders") is None


def test_a_remedy_names_what_can_be_done(store: ProgressStore, left: ProgressStore, file: Path, cdc: Cdc) -> None:
    create = ["create", str(file), "--store", store.url]
    assert f"run `cdc create {file} orders --store {store.url} --from-state` to move it" in cdc.sentence(*create)
    whole = file.read_text()
    file.write_text(f'{whole}end_time = "{Timestamp(1)}"\n')
    assert "--from-state" not in cdc.sentence(*create)
    file.write_text(whole)
    assert cdc("create", file, "--store", ".cdc").out
    told = cdc.sentence(*create)
    assert "is a job of the progress store" in told
    assert "--from-state" not in told


def test_all_that_is_kept_of_a_changefeed_moves_but_what_is_of_its_last_run() -> None:
    of_its_run = {"cdc_jobs", "cdc_job_events", "cdc_status", "cdc_claims", "cdc_traces", "cdc_moments"}
    forgotten, moved = ({table.name for table in module._TABLES} for module in (deletion, handover))
    assert moved < forgotten
    assert forgotten - moved == of_its_run


def test_a_job_is_refused_by_run_before_spark_starts(
    store: ProgressStore, file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    cdc("create", file)
    monkeypatch.setitem(sys.modules, "cdc_core.spark.runner", None)  # its import would fail
    assert cdc.sentence("run", file, "--state", store.url) == (
        "changefeed 'orders' is a job, which nodes run (running); see `cdc show orders`, or choose another name"
    )
