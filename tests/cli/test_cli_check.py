"""`cdc check` says of each part whether it is all right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.scripted import CounterPlanner, CounterRangefeed, JournalResolvedSink, Script
from cdc_testing.stored import node, progress

from cdc_core import RangefeedContext
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import main
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url


def test_check_prints_a_line_for_each_part_and_changes_nothing(file: Path, cdc: Cdc) -> None:
    assert cdc("check", file).out.splitlines() == [
        "changefeed 'orders'",
        "  source   paper paper://user:***@desk/db … ok",
        "           public.counter: 2 columns, key id",
        "  encoder  json … ok",
        "  sink     shelf shelf://room … ok",
    ]
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.toml"]


def test_check_says_that_it_asks_no_executor_of_a_cluster(file: Path, cdc: Cdc) -> None:
    with file.open("a") as toml:
        toml.write('\n[changefeed.orders.spark]\nmaster = "spark://a:7077"\n"spark.authenticate" = "false"\n')
    *_, last = cdc("check", file).out.splitlines()
    assert last == "  cluster  spark://a:7077 … not checked; `cdc run` checks each executor before it creates anything"


def test_check_says_which_nodes_offer_cores_or_how_they_come_about(file: Path, cdc: Cdc) -> None:
    with file.open("a") as toml:
        toml.write('\n[changefeed.orders.spark]\nmaster = "nodes"\n')
    *_, last = cdc("check", file).out.splitlines()
    made = "created by `cdc create`, on nodes started with `cdc node --cores N`"
    assert last == f"  cluster  nodes … not checked; it runs as a job, {made}"
    with closing(ProgressStore(store_url(file.parent / ".cdc"))) as store:
        for name, cores in (("eu", 3), ("leaving", 2), ("none", 0), ("us", 2)):
            store.nodes.join(replace(node(name), cores=cores, master=f"{name}:7077"), lease_s=600)
        Changefeeds(store).drain("leaving")
        *_, told, which = cdc("check", file).out.splitlines()
        assert (told, which) == ("  cluster  nodes … ok", "           2 cores offered to each job on eu, us")


def test_check_notes_marks_that_come_more_rarely_than_asked(file: Path, cdc: Cdc) -> None:
    with file.open("a") as toml:
        toml.write('resolved = "1s"\nmin_checkpoint_frequency = "1m"\n')
    *_, sink, note = cdc("check", file).out.splitlines()
    assert sink == "  sink     shelf shelf://room … ok"
    assert note.startswith("           note: resolved timestamps are at least 1m apart, not 1s as 'resolved' requests,")


def test_check_reports_every_part_that_fails_and_exits_with_2(file: Path, cdc: Cdc) -> None:
    Script(file.parent).order("check", "ConfigError wal_level is not logical for hunter2")
    Script(file.parent).order("sink-check", "ConfigError the directory is not writable")
    lines = cdc("check", file, status=2).out.splitlines()
    assert lines[1] == "  source   paper paper://user:***@desk/db … wal_level is not logical for ***"
    assert lines[-1] == "  sink     shelf shelf://room … the directory is not writable"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "  host     Spark … Spark needs Java, but '/nowhere/bin/java' does not run: "),
        (
            ["--state", "shop.toml/state"],
            "  host     directory … '{}/shop.toml/state' cannot be used as the state directory: ",
        ),
    ],
)
def test_check_names_what_a_run_would_lack_on_this_host(
    arguments: list[str], told: str, file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    lines = cdc("check", file, *arguments, status=2).out.splitlines()
    assert [line for line in lines if line.startswith(told.format(file.parent))]
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.toml"]


def test_check_needs_nothing_of_this_host_where_nodes_use_the_store(
    file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with closing(ProgressStore(store_url(file.parent / ".cdc"))) as store:
        store.nodes.join(node("eu"), lease_s=600)
    cdc("check", file)


def test_check_loads_every_part_that_a_run_needs(file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CounterPlanner, "__abstractmethods__", frozenset({"slices"}))
    monkeypatch.setattr(JournalResolvedSink, "emit_resolved", lambda _self: None)
    lines = cdc("check", file, status=2).out.splitlines()
    assert lines[1].endswith("rangefeed 'paper': 'cdc_testing.scripted:CounterPlanner' does not define slices")
    assert lines[-1].endswith(
        "sink 'shelf': 'cdc_testing.scripted:JournalResolvedSink' defines emit_resolved with other parameters than its"
        " contract: too many positional arguments"
    )


def _injected(method: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(method)
    def called(*arguments: object) -> None:
        method(*arguments, "injected")

    return called


@pytest.mark.parametrize(
    "method",
    [
        staticmethod(lambda _resolved: None),
        classmethod(lambda _class, _resolved: None),
        _injected(lambda _self, _resolved, _injected: None),
        functools.partialmethod(lambda _self, _injected, _resolved: None, "injected"),
    ],
    ids=["static", "of the class", "wrapped", "partial"],
)
def test_check_accepts_each_form_of_a_method(
    method: object, file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalResolvedSink, "emit_resolved", method)
    cdc("check", file)


@pytest.mark.parametrize(
    ("arguments", "status", "outcome"),
    [
        (["--locality", "cloud=aws,region=us,zone=a"], 0, "ok"),
        ([], 2, "does not match this process, which has no locality; run the changefeed on a machine that matches"),
        (
            ["--locality", "region=eu"],
            2,
            "does not match this process, whose locality is region=eu; run the changefeed on",
        ),
    ],
)
def test_check_says_whether_the_changefeed_may_run_here(
    arguments: list[str], status: int, outcome: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file.open("a") as toml:
        toml.write('execution_locality = "region=us,cloud=aws"\n')
    assert main(["check", str(file), *arguments]) == status
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("  locality region=us,cloud=aws … ")
    assert outcome in last


@pytest.mark.parametrize("state", [[], ["--state", "elsewhere"]])
def test_check_finds_out_what_the_next_run_would(
    state: list[str], file: Path, capsys: pytest.CaptureFixture[str], cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ProgressStore(store_url(file.parent / (state[-1] if state else ".cdc")))
    store.open()
    known = store.changefeeds.register("orders", resolve(read_changefeed(file, None), PluginHost.load()).definition())
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, progress())
    before = store.changefeeds.find("orders")
    checked: list[RangefeedContext] = []
    monkeypatch.setattr(CounterRangefeed, "check", lambda rangefeed: checked.append(rangefeed.context))
    assert main(["check", str(file), *state]) == 0
    assert [(context.feed_id, context.saved) for context in checked] == [(known.feed_id, progress().token)]
    _, line, *_ = capsys.readouterr().out.splitlines()
    assert line == f"  progress {store.shown} … ok"
    file.write_text(file.read_text().replace("public.counter", "public.other"))
    _, line, *_ = cdc("check", file, *state, status=2).out.splitlines()
    assert "… changefeed 'orders' was started on the tables public.counter, not public.other" in line
    assert store.changefeeds.find("orders") == before
    store.close()
