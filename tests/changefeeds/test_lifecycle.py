"""Requests that may come in any state and twice: nothing undoes what an operator or an error has decided."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
import sqlalchemy as sa
from cdc_testing.stored import DEFINITION, die, node, paused, progress

from cdc_core.changefeeds.altering import configure
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError, FencedError, TerminalError
from cdc_core.locality import Locality
from cdc_core.store.job_rows import of_job
from cdc_core.store.job_values import JobRecord, NodeRecord, Pending
from cdc_core.store.progress import ProgressStore
from cdc_core.store.tables import STATUSES
from cdc_core.store.verbs import RefusedError, UnknownError

WIDER = DEFINITION | {"tables": [*DEFINITION["tables"], "public.more"]}


@pytest.fixture
def one(store: ProgressStore) -> NodeRecord:
    """A node that runs the job `orders`."""
    node_ = store.nodes.join(node("one"), lease_s=60)
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    assert store.claims.adopt("orders", node_) is not None
    return node_


def wider(**changes: object) -> Pending:
    values = {"definition": WIDER, "locality": Locality(), "initial_scans": {}, "why": "altered", **changes}
    return Pending(**values)  # type: ignore[arg-type]


def tables(store: ProgressStore) -> object:
    known = store.changefeeds.find("orders")
    assert known is not None
    return known.definition["tables"]


def look(store: ProgressStore) -> tuple[str, str | None]:
    job = store.jobs.find("orders")
    assert job is not None
    return job.state, job.paused_for


def test_a_restart_is_finished_by_the_node_alone(store: ProgressStore, one: NodeRecord) -> None:
    for _ in range(2):
        assert Changefeeds(store).restart("orders", "restart").state == "pause-requested"
    assert store.claims.settle("orders", one, "stopped") == "running"
    again = store.claims.adopt("orders", one)
    assert again is not None
    assert (again.epoch, again.clean) == (2, True)


def test_a_pause_that_comes_after_a_restart_holds(store: ProgressStore, one: NodeRecord) -> None:
    Changefeeds(store).restart("orders", "restart")
    Changefeeds(store).pause("orders", "maintenance")
    assert store.claims.settle("orders", one, "stopped") == "paused"
    assert Changefeeds(store).restart("orders", "restart").state == "paused"


def test_a_resume_that_comes_before_the_pause_is_over_holds(store: ProgressStore, one: NodeRecord) -> None:
    for _ in range(2):
        Changefeeds(store).pause("orders", "maintenance")
        Changefeeds(store).resume("orders")
    assert store.claims.settle("orders", one, "stopped") == "running"


def test_stop_and_pause_replace_each_other_and_resume_ends_both(store: ProgressStore, one: NodeRecord) -> None:
    Changefeeds(store).pause("orders", "stop", "stop")
    assert store.claims.settle("orders", one, "stopped") == "paused"
    assert look(store) == ("paused", "stop")
    Changefeeds(store).pause("orders", "pause")
    assert look(store) == ("paused", None)
    Changefeeds(store).pause("orders", "stop", "stop")
    assert Changefeeds(store).resume("orders").state == "running"
    assert look(store) == ("running", None)


def test_a_job_without_a_living_node_is_paused_at_once_and_its_node_is_fenced(
    store: ProgressStore, one: NodeRecord
) -> None:
    die(store, one)
    job = Changefeeds(store).pause("orders", "stop", "stop")
    assert (job.state, job.epoch) == ("paused", 2)
    with pytest.raises(FencedError):
        store.changefeeds.begin_attempt("orders", after=1)
    assert store.claims.settle("orders", one, "stopped") is None


def test_a_waiting_job_does_what_people_say(store: ProgressStore) -> None:
    for kind in ("pause", "stop"):
        store.jobs.create(kind, DEFINITION, owner="ann", locality=Locality())
        store.claims.await_match(kind, reason="no node matches")
        job = Changefeeds(store).pause(kind, "maintenance", kind)  # type: ignore[arg-type]
        assert (job.state, job.paused_for) == ("paused", None if kind == "pause" else "stop")
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    store.claims.await_match("orders", reason="no node matches")
    assert Changefeeds(store).cancel("orders", "over").state == "cancel-requested"


def test_an_error_does_not_undo_a_stop(store: ProgressStore, one: NodeRecord) -> None:
    Changefeeds(store).pause("orders", "stop", "stop")
    assert store.claims.settle("orders", one, "paused", "the sink refuses") == "paused"
    assert look(store) == ("paused", "stop")


def test_a_pause_in_place_of_a_restart_is_told(store: ProgressStore, one: NodeRecord) -> None:
    Changefeeds(store).restart("orders", "restart")
    Changefeeds(store).pause("orders", "maintenance")
    assert [event.message for event in store.events.read("orders", kinds=["pause_requested"])] == [
        "restart",
        "maintenance",
    ]


def test_a_new_definition_of_a_job_that_is_to_pause_fences_a_frozen_node(store: ProgressStore, one: NodeRecord) -> None:
    Changefeeds(store).pause("orders", "maintenance")
    die(store, one)
    job = configure(store, "orders", wider(), before=DEFINITION)
    assert (job.state, job.epoch, tables(store)) == ("pause-requested", 2, WIDER["tables"])
    with pytest.raises(FencedError):
        store.progress.save("orders", 1, progress(50))
    assert store.claims.settle("orders", one, "stopped") is None
    two = store.nodes.join(node("two"), lease_s=60)
    assert store.claims.adopt("orders", two) is not None
    assert store.claims.settle("orders", two, "stopped") == "paused"


def test_a_new_definition_waits_for_the_running_step(store: ProgressStore, one: NodeRecord) -> None:
    job = configure(store, "orders", wider(), before=DEFINITION)
    assert (job.state, tables(store)) == ("pause-requested", DEFINITION["tables"])
    assert job.pending is not None
    assert job.pending.definition == WIDER
    store.changefeeds.register("orders", DEFINITION, epoch=1)  # the old run begins another attempt
    assert store.claims.settle("orders", one, "stopped") == "running"
    assert tables(store) == WIDER["tables"]
    assert look(store) == ("running", None)


@pytest.mark.parametrize("kind", ["pause", "stop"])
def test_a_new_definition_does_not_undo_a_pause(store: ProgressStore, one: NodeRecord, kind: str) -> None:
    Changefeeds(store).pause("orders", "maintenance", kind)  # type: ignore[arg-type]
    configure(store, "orders", wider(), before=DEFINITION)
    assert store.claims.settle("orders", one, "stopped") == "paused"
    assert tables(store) == WIDER["tables"]
    configure(store, "orders", wider(definition=DEFINITION), before=WIDER)
    assert look(store) == ("paused", "stop" if kind == "stop" else None)
    assert tables(store) == DEFINITION["tables"]


@pytest.mark.parametrize("rests", ["paused", "failed"])
def test_a_pause_hides_no_error_and_a_restart_ends_it(
    store: ProgressStore, one: NodeRecord, rests: Literal["paused", "failed"]
) -> None:
    store.claims.settle("orders", one, rests, "the sink refuses")
    job = Changefeeds(store).pause("orders", "pause")
    assert (job.state, job.rests_for_error, job.reason) == (rests, True, "the sink refuses")
    assert Changefeeds(store).restart("orders", "restart").state == "running"
    assert look(store) == ("running", None)


@pytest.mark.parametrize("rests", ["paused", "failed"])
def test_a_job_that_rests_for_an_error_runs_again_with_a_new_definition(
    store: ProgressStore, one: NodeRecord, rests: Literal["paused", "failed"]
) -> None:
    store.claims.settle("orders", one, rests, "the sink refuses")
    assert configure(store, "orders", wider(), before=DEFINITION).state == "running"
    assert tables(store) == WIDER["tables"]
    assert look(store) == ("running", None)


def test_a_definition_that_was_changed_meanwhile_is_not_overwritten(store: ProgressStore, one: NodeRecord) -> None:
    configure(store, "orders", wider(), before=DEFINITION)
    with pytest.raises(ConfigError, match="changed in the meantime"):
        configure(store, "orders", wider(), before=DEFINITION)
    configure(store, "orders", wider(definition=DEFINITION), before=WIDER)
    assert store.claims.settle("orders", one, "stopped") == "running"
    assert tables(store) == DEFINITION["tables"]


def test_another_source_is_refused_while_the_job_runs_and_nothing_has_changed(
    store: ProgressStore, one: NodeRecord
) -> None:
    store.progress.save("orders", 1, progress(50))
    other = DEFINITION | {"source": "postgresql://elsewhere/shop"}
    with pytest.raises(ConfigError, match="source"):
        configure(store, "orders", wider(definition=other), before=DEFINITION)
    job = store.jobs.find("orders")
    assert job is not None
    assert (job.state, job.pending) == ("running", None)


def test_a_job_may_be_created_paused(store: ProgressStore, one: NodeRecord) -> None:
    store.jobs.create("later", DEFINITION, owner="ann", locality=Locality(), paused_for="stop")
    job = store.jobs.find("later")
    assert job is not None
    assert (job.state, job.paused_for) == ("paused", "stop")
    assert store.claims.adopt("later", one) is None


def test_a_job_that_has_ended_or_is_to_end_takes_no_request(store: ProgressStore, one: NodeRecord) -> None:
    Changefeeds(store).cancel("orders", "over")
    requests: list[Callable[[], JobRecord]] = [
        lambda: Changefeeds(store).pause("orders", ""),
        lambda: Changefeeds(store).resume("orders"),
        lambda: Changefeeds(store).restart("orders", ""),
        lambda: configure(store, "orders", wider(), before=DEFINITION),
    ]
    for request in requests:
        with pytest.raises(ConfigError, match="about to end"):
            request()
    Changefeeds(store).delete("orders", "over")
    assert look(store)[0] == "cancel-requested"
    store.claims.settle("orders", one, "stopped")
    store.claims.settle("orders", one, "reverted")
    with pytest.raises(ConfigError, match=r"has ended \(canceled\)"):
        Changefeeds(store).resume("orders")
    Changefeeds(store).delete("orders", "over")
    assert store.jobs.find("orders") is None


def test_all_jobs_are_those_for_which_a_verb_does_something(store: ProgressStore, one: NodeRecord) -> None:
    for name in ("failed", "gone"):
        store.jobs.create(name, DEFINITION, owner="ann", locality=Locality())
        assert store.claims.adopt(name, one) is not None
        store.claims.settle(name, one, "failed" if name == "failed" else "succeeded")
    changefeeds = Changefeeds(store)
    assert changefeeds.jobs_for("pause") == ["orders"]
    assert changefeeds.jobs_for("resume") == ["failed"]
    assert changefeeds.jobs_for("cancel") == ["failed", "orders"]


def test_a_refusal_has_the_state_and_a_remedy(store: ProgressStore, one: NodeRecord) -> None:
    changefeeds = Changefeeds(store)
    with pytest.raises(RefusedError, match=r"^job 'orders' is running; end it with `cdc cancel orders`$") as refused:
        changefeeds.find_job("orders", verb="drop")
    assert (refused.value.state, refused.value.remedy) == ("running", "end it with `cdc cancel orders`")
    changefeeds.cancel("orders", "no longer needed")
    store.claims.settle("orders", one, "stopped")
    store.claims.settle("orders", one, "not reverted", "no route to db:5432")
    with pytest.raises(RefusedError, match="no route to db:5432") as refused:
        changefeeds.find_job("orders", verb="drop")
    remedy = "try again with `cdc cancel orders`, or forget the job with `cdc drop orders --forget-only`"
    assert (refused.value.state, refused.value.remedy) == ("revert-failed", remedy)


@pytest.fixture
def run(store: ProgressStore) -> int:
    """The epoch of the changefeed `orders`, which `cdc run` has begun and nobody runs now."""
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, progress())
    return epoch


def history(store: ProgressStore) -> list[tuple[str, str | None]]:
    return [(event.state, event.reason) for event in store.jobs.events("orders")]


def test_what_no_run_runs_is_paused_at_once(store: ProgressStore, run: int) -> None:
    assert Changefeeds(store).pause("orders", "lunch").state == "paused"
    assert paused(store) == "lunch"
    assert store.changefeeds.register("orders", DEFINITION).epoch == run
    assert paused(store) == "lunch"
    assert Changefeeds(store).resume("orders").state == "running"
    assert paused(store) is None
    assert history(store) == [("paused", "lunch"), ("running", "resumed")]


def test_a_run_that_is_alive_pauses_when_its_step_has_ended(store: ProgressStore, run: int) -> None:
    store.statuses.save("orders", run, {"phase": "running"})
    assert Changefeeds(store).pause("orders", "lunch").state == "pause-requested"
    assert (store.jobs.paused_runs(), paused(store)) == ({"orders"}, None)
    store.claims.pause_run("orders", run)
    assert paused(store) == "lunch"
    store.claims.resume_run("orders")
    store.claims.pause_run("orders", run)  # it has heard of the pause and not yet of the resumption
    assert paused(store) is None


def test_a_pause_that_was_resumed_before_it_took_effect_has_none(store: ProgressStore, run: int) -> None:
    store.statuses.save("orders", run, {"phase": "running"})
    Changefeeds(store).pause("orders", "lunch")
    known = store.changefeeds.find("orders")
    assert known is not None
    assert known.pause_requested is not None
    assert Changefeeds(store).resume("orders").paused_for == "restart"
    known = store.changefeeds.find("orders")
    assert known is not None
    assert known.pause_requested is None
    store.claims.pause_run("orders", run)
    assert (store.jobs.paused_runs(), paused(store)) == (frozenset(), None)


def test_a_pause_that_a_thread_asks_for_after_a_resumption_holds(store: ProgressStore, run: int) -> None:
    store.statuses.save("orders", run, {"phase": "running"})
    Changefeeds(store).pause("orders", "lunch")
    Changefeeds(store).resume("orders")
    with pytest.raises(TerminalError, match="it was not paused: job 'orders' was resumed in the meantime"):
        Changefeeds(store).wait("orders", "pause")
    store.claims.pause_run("orders", run, asked="tea")
    assert paused(store) == "tea"


@pytest.mark.parametrize("verb", ["create", "alter"])
def test_a_run_that_has_not_begun_its_first_attempt_is_fenced(store: ProgressStore, run: int, verb: str) -> None:
    epoch = store.changefeeds.register("orders", DEFINITION).epoch
    if verb == "create":
        store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    else:
        configure(store, "orders", wider(), before=DEFINITION, epoch=run)
    with pytest.raises(FencedError):
        store.changefeeds.begin_attempt("orders", after=epoch)


def test_a_pause_outlives_a_run_that_died_before_it(store: ProgressStore, run: int) -> None:
    store.statuses.save("orders", run, {"phase": "running"})
    Changefeeds(store).pause("orders", "lunch")
    store.changefeeds.register("orders", DEFINITION)
    assert paused(store) == "lunch"


def test_no_node_and_no_verb_of_nodes_touches_what_cdc_run_runs(store: ProgressStore, run: int) -> None:
    one, feeds = store.nodes.join(node("one"), lease_s=60), Changefeeds(store)
    assert store.claims.overview().jobs == store.jobs.all() == []
    assert store.jobs.find("orders") is None
    assert store.claims.adopt("orders", one) is None
    assert store.claims.prune(retention_s=-1) == []
    for verb, instead in (
        (feeds.restart, "stop the run, and start it again"),
        (feeds.cancel, "stop the run, and then use `cdc drop orders --store DIR|URL`"),
        (feeds.set_owner, "only jobs have owners"),
    ):
        with pytest.raises(UnknownError) as refused:
            verb("orders", "ann")
        assert str(refused.value) == f"changefeed 'orders' is run by `cdc run` and is not a job; {instead}"
    known = store.changefeeds.find("orders")
    assert known is not None
    assert known.epoch == run


def fall_silent(store: ProgressStore) -> None:
    """Have the store not heard of any run for ten minutes."""
    long_ago = (datetime.now(UTC) - timedelta(minutes=10)).isoformat(timespec="milliseconds")
    with store.transaction() as connection:
        connection.execute(sa.update(STATUSES).values(written_at=long_ago))


@pytest.mark.parametrize("again", ["after a pause", "after a resumption"])
def test_a_run_that_died_before_its_pause_is_paused_by_a_second_request(
    store: ProgressStore, run: int, again: str
) -> None:
    store.statuses.save("orders", run, {"phase": "running"})
    feeds = Changefeeds(store)
    feeds.pause("orders", "lunch")
    if again == "after a resumption":
        feeds.resume("orders")
    fall_silent(store)
    assert feeds.pause("orders", "tea").state == "paused"
    assert paused(store) == ("lunch" if again == "after a pause" else "tea")


def test_who_waits_for_a_pause_does_not_wait_for_a_run_that_died(store: ProgressStore, run: int) -> None:
    store.statuses.save("orders", run, {"phase": "running"})
    Changefeeds(store).pause("orders", "lunch")
    fall_silent(store)
    assert Changefeeds(store).wait("orders", "pause").reason == "lunch"


def test_a_run_that_became_a_job_does_not_pause_it(store: ProgressStore, run: int) -> None:
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    with pytest.raises(FencedError):
        store.claims.pause_run("orders", run, "a row was refused")
    assert look(store)[0] == "running"


def test_only_a_pause_keeps_a_run_from_running(store: ProgressStore, run: int) -> None:
    with store.transaction() as connection:
        connection.execute(of_job("orders").values(state="failed"))
    assert store.jobs.paused_runs() == frozenset()


@pytest.mark.parametrize("pause", ["none", "error", "requested", "resumed"])
def test_what_another_store_refuses_is_paused_as_before(store: ProgressStore, run: int, pause: str) -> None:
    feeds = Changefeeds(store)
    if pause == "error":
        store.claims.pause_run("orders", run, "a row was refused")
    elif pause != "none":
        store.statuses.save("orders", run, {"phase": "running"})
        feeds.pause("orders", "a row was refused")
        if pause == "resumed":
            feeds.resume("orders")
    kept = store.handover.give("orders", to="there", again="cdc create", owner="ann")
    assert look(store)[0] == "canceled"
    store.claims.prune(retention_s=-1)
    store.handover.take_back("orders", kept)
    assert store.changefeeds.register("orders", DEFINITION).epoch == run + 1
    is_paused = pause in ("error", "requested")
    assert paused(store) == ("a row was refused" if is_paused else None)
    job = store.jobs.find("orders", of_runs=True)
    assert job is not None
    assert job.paused_for == ("error" if pause == "error" else None)


def test_a_paused_run_that_becomes_a_job_runs(store: ProgressStore, run: int) -> None:
    store.claims.pause_run("orders", run, "a row was refused")
    job = store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    assert (job.state, job.reason, job.is_run, job.epoch) == ("running", None, False, run + 1)
    assert history(store) == [("running", "created")]
    with pytest.raises(ConfigError, match="is a job, which nodes run"):
        store.changefeeds.register("orders", DEFINITION)
