"""`cdc jobs`, `cdc show` and `cdc nodes`: what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace

import pytest
import sqlalchemy as sa
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created, ended, save
from cdc_testing.stored import DEFINITION, die, node

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.store.job_tables import JOBS, DatabaseNow
from cdc_core.store.progress import ProgressStore
from cdc_core.store.tables import STATUSES


def test_jobs_are_listed_with_what_is_done_for_them(store: ProgressStore, cdc: Cdc) -> None:
    store.open()
    assert cdc("jobs").out == f"there are no jobs in the store {store.shown}\n"
    created(store, "a")
    created(store, "b")
    Changefeeds(store).pause("b", "maintenance")
    created(store, "c")
    ended(store, "failed", "c", "the slot\nis lost")
    store.jobs.create("d", DEFINITION, owner="bob", locality=Locality.parse("region=eu"))
    lines = cdc("jobs").out.splitlines()
    assert lines[0].split() == ["name", "state", "node", "owner", "behind", "status"]
    assert [re.split("  +", line)[:2] for line in lines[1:]] == [
        ["a", "running"],
        ["b", "pause-requested"],
        ["c", "failed !"],
        ["d", "running"],
    ]
    assert [line.rpartition("  ")[2] for line in lines[1:]] == [
        "starting on node one",
        "waiting for node one to stop it",
        "the slot is lost",
        "waiting for a node that matches region=eu",
    ]
    save(store, "a")
    shown = {each["name"]: each for each in map(json.loads, cdc("jobs", "--json").out.splitlines())}
    assert shown["a"]["running_status"] == "running: resolved=1.0000000003"
    assert shown["a"]["node"] == "one"
    assert shown["c"]["reason"] == "the slot\nis lost"
    assert shown["c"]["finished"] is None, "it keeps its position"


def test_what_cdc_run_runs_is_named_below_the_jobs(store: ProgressStore, cdc: Cdc) -> None:
    store.changefeeds.register("b", DEFINITION)
    store.changefeeds.register("a", DEFINITION)
    said = "run by `cdc run`, and not by nodes: a, b; see `cdc show`"
    assert cdc("jobs").out.splitlines() == [f"there are no jobs in the store {store.shown}", said]
    created(store)
    assert [line.split()[0] for line in cdc("jobs").out.splitlines()] == ["name", "orders", "run"]
    assert cdc.json("jobs")["name"] == "orders"


def test_the_high_water_mark_is_a_time_for_people_and_a_timestamp_for_programs(store: ProgressStore, cdc: Cdc) -> None:
    created(store, "a")
    assert "starting on node one" in cdc("jobs").out
    save(store, "a")
    for command in (["jobs"], ["show", "a"]):
        assert "  resolved 1970-01-01 00:00:00 UTC\n" in cdc(*command).out
    assert cdc.json("jobs")["running_status"] == "running: resolved=1.0000000003"
    ended(store, "succeeded", "a")
    assert re.search(r"succeeded  ann    ended at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", cdc("jobs").out, re.MULTILINE)


def test_a_job_that_failed_says_how_it_continues(store: ProgressStore, cdc: Cdc) -> None:
    said = (
        "\n  continue with     `cdc resume a` once the cause is fixed; `cdc alter a` changes its tables and options\n"
    )
    created(store, "a")
    assert said not in cdc("show", "a").out
    ended(store, "failed", "a", "the row has 9 bytes; raise max_row_bytes")
    assert said in cdc("show", "a").out
    created(store, "b")
    ended(store, "failed", "b", "the topic is gone. Create it, then resume the job with `cdc resume b`")
    assert "continue with" not in cdc("show", "b").out, "the error says it"


LONG = "the server removed log that is needed; raise max_slot_wal_keep_size and create the changefeed again. " * 4
"""What people read when something is wrong."""


@pytest.mark.parametrize("width", [80, 120])
def test_tables_are_wrapped_to_the_width_of_the_terminal(
    store: ProgressStore, cdc: Cdc, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    names = ("orders", "a-name-as-teams-like-them.with-the-stage.and-the-region-of-it")
    for name in names:
        created(store, name)
        ended(store, "failed", name, f"{LONG}postgresql://u:se%63ret@host/x")
    assert max(map(len, cdc("jobs").out.splitlines())) > 400, "a line for each job, for programs"
    monkeypatch.setenv("COLUMNS", str(width))
    for command in ("jobs", "nodes"):
        heading, *lines = cdc(command).out.splitlines()
        assert max(map(len, lines)) <= width
    heading, *lines = cdc("jobs").out.splitlines()
    at = heading.index("status")
    assert width - at >= 0.4 * width, "a long name leaves room for the reason"
    assert LONG.replace(" ", "") in "".join(line[at:].strip() for line in lines).replace(" ", "")
    assert names[1] in "".join(line[:at].split(" ")[0] for line in lines)


def test_on_a_terminal_colours_tell_good_from_bad_and_without_them_a_mark(store: ProgressStore) -> None:
    created(store, "good")
    save(store, "good")
    created(store, "bad")
    ended(store, "failed", "bad", LONG)
    shown = on_terminal("jobs", "--store", store.url)
    assert "good  \x1b[32mrunning\x1b[0m " in shown
    assert "bad   \x1b[31mfailed !\x1b[0m " in shown
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", shown).splitlines())) <= 80
    plain = on_terminal("jobs", "--store", store.url, NO_COLOR="1")
    assert "\x1b" not in plain
    assert "bad   failed ! " in plain


def on_terminal(*arguments: str, **environment: str) -> str:
    """Return what a command prints on a terminal of 80 columns."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    command = [sys.executable, "-m", "cdc_core", *arguments]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**environ, "TERM": "xterm", **environment}
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux's way to say that the other side is closed
            while part := os.read(ours, 65_536):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode().replace("\r\n", "\n")


def test_a_job_that_was_taken_over_shows_nothing_of_its_previous_run(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    save(store, "orders", waiting_for="no route to db:5432")
    assert cdc.json("jobs")["running_status"].startswith("running: ")
    two = store.nodes.join(node("two"), lease_s=600)
    ended(store, "stopped")
    assert store.claims.adopt("orders", two) is not None
    assert cdc.json("jobs")["running_status"] == "starting on node two"
    shown = cdc("show", "orders").out
    assert "starting on node two" in shown
    assert "no route to db" not in shown
    assert "last run          silent since" in shown
    save(store, "orders")
    assert cdc.json("jobs")["running_status"].startswith("running: ")
    with store._database.transaction() as connection:
        connection.execute(sa.update(STATUSES).values(written_at="2026-01-31T12:30:00+00:00"))
    assert cdc.json("jobs")["running_status"] == "silent since 2026-01-31 12:30:00 UTC on node two"


def test_jobs_that_finished_long_ago_are_listed_on_request(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    ended(store, "succeeded")
    with store._database.transaction() as connection:
        connection.execute(sa.update(JOBS).values(finished=DatabaseNow() - 13 * 3600))
    assert cdc("jobs").out.endswith("; 1 finished earlier, see --all\n")
    assert cdc("jobs", "--json").out == ""
    assert cdc.json("jobs", "--all")["state"] == "succeeded"


def test_a_job_waits_for_a_node_that_can_run_it(store: ProgressStore, cdc: Cdc) -> None:
    one = store.nodes.join(node("one"), lease_s=600)
    two = store.nodes.join(node("two"), lease_s=600)
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    store.nodes.renew(one.node_id, lease_s=600, problems={"orders": "no sink 'kafka'"})
    assert cdc.json("jobs")["running_status"] == "waiting for a node; one: no sink 'kafka'"
    assert "one cannot run job 'orders': no sink 'kafka'\n" in cdc("nodes").out
    store.nodes.renew(one.node_id, lease_s=600, problems={"orders": "not now: no route to broker"})
    assert "one failed to run job 'orders' and will try again: no route to broker\n" in cdc("nodes").out
    assert store.claims.adopt("orders", one) is not None
    store.claims.settle("orders", one, "stopped", offer_to=two, offer_s=600)
    assert cdc.json("jobs")["running_status"] == "waiting for node two to adopt it"


def test_a_job_is_shown_with_its_history(store: ProgressStore, cdc: Cdc) -> None:
    created(store, locality="region=eu")
    failed = {"error": "no route to db:5432", "since": "2026-01-31T12:00:00+00:00", "failures": 2}
    save(store, "orders", waiting_for="no route to db:5432", retrying=failed)
    lines = cdc("show", "orders").out.splitlines()
    assert lines[:6] == [
        "job 'orders': retrying on node one",
        "  status            retrying since 2026-01-31 12:00:00 UTC, after 2 failures: no route to db:5432; an attempt"
        " is running",
        "  owner             ann",
        "  locality          region=eu",
        "  last run          retrying on here (process 7)",
        "  source            postgresql://user:***@host:5432/shop: public.orders, public.users",
    ]
    assert lines[-2].startswith("  history           ")
    assert lines[-2].endswith(" UTC running: created")
    assert lines[-1].endswith(" UTC running, by node one: adopted")
    Changefeeds(store).pause("orders", "maintenance")
    ended(store, "stopped")
    assert cdc("show", "orders").out.startswith("job 'orders': paused: maintenance\n")
    shown = cdc.json("show", "orders")
    assert (shown["state"], shown["job"]["owner"]) == ("paused", "ann")
    assert [(each["state"], each["reason"], each["node"]) for each in shown["job"]["history"]] == [
        ("running", "created", None),
        ("running", "adopted", "one"),
        ("pause-requested", "maintenance", None),
        ("paused", "maintenance", "one"),
    ]
    store.changefeeds.register("users", DEFINITION)
    every = cdc("show").out
    assert "job 'orders': paused" in every
    assert "changefeed 'users': has never run" in every


def test_nodes_are_listed_with_their_part_in_the_cluster(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    assert "leads" not in cdc("nodes").out, "there is no cluster"
    eu = store.nodes.join(replace(node("eu"), cores=2, master="10.0.0.1:7077"), lease_s=600)
    store.nodes.join(replace(node("us"), cores=1, master="10.0.0.2:7077"), lease_s=600)
    assert store.nodes.renew(eu.node_id, lease_s=600, problems={}, cores_used=3) is not None
    store.cluster.poll(eu)
    save(store, "orders", slices={"10.0.0.2": 60, "10.0.0.9": 40})
    assert "\n  slices            60 on us, 40 on 10.0.0.9\n" in cdc("show", "orders").out
    assert cdc.json("show", "orders")["slices"] == {"10.0.0.2": 60, "10.0.0.9": 40}
    ends = [re.split("  +", line)[-3:] for line in cdc("nodes").out.splitlines()]
    assert ends == [
        ["leads", "cores", "aggregates"],
        ["yes", "2, 3 used", "0 jobs"],
        ["no", "none", "0 jobs"],
        ["no", "1, 0 used", "1 job"],
    ]
    names = ("name", "address", "leads", "cores", "cores_used", "aggregates")
    shown = [json.loads(line) for line in cdc("nodes", "--json").out.splitlines()]
    assert [tuple(each[name] for name in names) for each in shown] == [
        ("eu", "10.0.0.1", True, 2, 3, []),
        ("one", None, False, 0, 0, []),
        ("us", "10.0.0.2", False, 1, 0, ["orders"]),
    ]
    die(store, eu)
    assert [json.loads(line)["leads"] for line in cdc("nodes", "--json").out.splitlines()] == [False] * 3


def test_slices_are_told_of_no_dead_node_and_of_no_two_at_one_address(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    save(store, "orders", slices={"10.0.0.1": 60})

    def aggregates() -> list[list[str]]:
        return [json.loads(line)["aggregates"] for line in cdc("nodes", "--json").out.splitlines()]

    store.nodes.join(replace(node("eu"), cores=1, master="10.0.0.1:7077"), lease_s=600)
    second = store.nodes.join(replace(node("us"), cores=1, master="10.0.0.1:7078"), lease_s=600)
    assert aggregates() == [[], [], []]
    assert "\n  slices            60 on 10.0.0.1\n" in cdc("show", "orders").out
    die(store, second)
    assert aggregates() == [["orders"], [], []]
    assert "\n  slices            60 on eu\n" in cdc("show", "orders").out


def test_nodes_are_listed_with_their_jobs(store: ProgressStore, cdc: Cdc) -> None:
    store.open()
    assert "no node has joined the store" in cdc("nodes").out
    created(store)
    die(store, store.nodes.join(node("two"), lease_s=600))
    lines = cdc("nodes").out.splitlines()
    assert lines[1].split()[:8] == ["one", "alive", "region=eu", "here", "1", "1", "of", "9"]
    assert lines[2].split()[:8] == ["two", "dead", "!", "here", "1", "0", "of", "9"]
    shown = [json.loads(line) for line in cdc("nodes", "--json").out.splitlines()]
    assert [(each["name"], each["state"], each["jobs"]) for each in shown] == [
        ("one", "alive", ["orders"]),
        ("two", "dead", []),
    ]
