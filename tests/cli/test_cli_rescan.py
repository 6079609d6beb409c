"""`cdc rescan`: what is asked for, what is refused, and what `cdc show` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance.plugin import SIMULATED
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.command import Cdc

from cdc_core import Frontier, Span, Timestamp
from cdc_core.cli.main import main
from cdc_core.engine.fencing import RunLock
from cdc_core.store.progress import Progress, ProgressStore, store_url

Capture = pytest.CaptureFixture[str]
PLUGINS = (SIMULATED,)
TOML = """
[changefeed.orders]
source = "simulated://{directory}"
tables = ["orders", "users"]
sink = "shelf://room"
[changefeed.orders.options]
control = "{control}"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The file of a changefeed of a simulated database."""
    database = SimulatedDatabase.create(tmp_path / "shop")
    for name in ("orders", "users"):
        database.create_table(name)
    path = tmp_path / "shop.toml"
    path.write_text(TOML.format(directory=database.directory, control=tmp_path))
    return path


@pytest.fixture
def store(shop: Path) -> ProgressStore:
    """A store that knows the changefeed, which has run."""
    store = ProgressStore(store_url(shop.parent / ".cdc"))
    definition = {"source": f"simulated://{shop.parent}/shop", "tables": ["orders", "users"], "sink": "shelf://room"}
    store.changefeeds.register("orders", definition)
    save(store, Timestamp(50))
    return store


def save(store: ProgressStore, high_water: Timestamp) -> int:
    epoch = store.changefeeds.begin_attempt("orders")
    frontier = Frontier([Span("sim.public.orders")])
    frontier.forward(Span("sim.public.orders"), high_water)
    store.progress.save("orders", epoch, Progress(token={"n": 7}, frontier=frontier))
    return epoch


def asked(store: ProgressStore) -> list[tuple[str | None, str | None, bool]]:
    return [(found.table, found.where, found.new_slot) for found in store.rescans.of("orders")]


def refused(capsys: Capture, *arguments: str) -> str:
    assert main(["rescan", *arguments]) == 2
    return capsys.readouterr().err


def test_a_table_is_asked_for(shop: Path, store: ProgressStore, capsys: Capture) -> None:
    full = SimulatedDatabase(shop.parent / "shop").cluster.table("orders").name.full
    for arguments in (["orders"], ["orders", "orders"], ["orders", "public.orders"], ["orders", full]):
        assert main(["rescan", str(shop), *arguments]) == 0
    assert asked(store) == [(full, None, False)] * 4
    told = f"changefeed 'orders': table {full} will be emitted again, by the current run or the next one\n"
    assert capsys.readouterr().out == told * 4


def test_a_part_of_a_table_and_all_tables_are_asked_for(shop: Path, store: ProgressStore, capsys: Capture) -> None:
    assert main(["rescan", str(shop), "orders", "users", "--where", "id < 5"]) == 0
    assert main(["rescan", str(shop), "--all"]) == 0
    assert main(["rescan", str(shop), "orders", "--all", "--new-slot"]) == 0
    (part, *others) = asked(store)
    assert part[1:] == ("id < 5", False)
    assert others == [(None, None, False), (None, None, True)]
    shown = capsys.readouterr().out
    assert "users where id < 5 will be emitted again" in shown
    assert "all tables will be emitted again" in shown
    assert "Rows that were deleted in the meantime are not emitted" in shown


def test_the_changefeed_may_be_named_in_the_store(shop: Path, store: ProgressStore, cdc: Cdc) -> None:
    assert "which an older version of cdc-core wrote" in cdc.refused("rescan", "--store", store.url, "orders", "users")
    assert asked(store) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["orders", "ordes"], "the changefeed has no table 'ordes'; did you mean 'orders'?"),
        (["orders", "orders", "--where", "id <"], "is not a predicate that the simulated database"),
        (["orders", "orders", "--where", "colour = 1"], "has no column 'colour'"),
        ([], "write `cdc rescan FILE [NAME] TABLE`, or `cdc rescan FILE [NAME] --all`"),
        (["orders", "orders", "users"], "write `cdc rescan FILE [NAME] TABLE`"),
        (["orders", "orders", "--all"], "write `cdc rescan FILE [NAME] TABLE`"),
        (["--all", "--where", "id < 5"], "--where selects rows of one table; name the table instead of --all"),
        (["orders", "--new-slot"], "--new-slot rescans all tables; write --all --new-slot"),
        (["order", "orders"], "has no changefeed 'order'; did you mean 'orders'?"),
    ],
)
def test_what_cannot_be_read_is_refused_before_it_is_stored(
    shop: Path, store: ProgressStore, capsys: Capture, arguments: list[str], told: str
) -> None:
    assert told in refused(capsys, str(shop), *arguments)
    assert asked(store) == []


def test_a_source_that_cannot_read_tables_again_says_so(file: Path, capsys: Capture) -> None:
    store = ProgressStore(store_url(file.parent / ".cdc"))
    store.changefeeds.register(
        "orders", {"source": "paper://desk/db", "tables": ["public.counter"], "sink": "shelf://room"}
    )
    save(store, Timestamp(50))
    assert "source of this changefeed cannot read tables again" in refused(capsys, str(file), "public.counter")
    assert asked(store) == []


def test_a_changefeed_that_has_not_begun_needs_none(shop: Path, capsys: Capture) -> None:
    store = ProgressStore(store_url(shop.parent / ".cdc"))
    assert "is not known: there is no progress store" in refused(capsys, str(shop), "orders")
    store.changefeeds.register(
        "orders", {"source": f"simulated://{shop.parent}/shop", "tables": ["orders"], "sink": "shelf://room"}
    )
    assert "has not started yet; its first run reads all tables" in refused(capsys, str(shop), "orders")


def test_a_changefeed_that_only_scans_is_told_another_way(shop: Path, store: ProgressStore, capsys: Capture) -> None:
    shop.write_text(shop.read_text() + 'initial_scan = "only"\n')
    assert "only scans its tables, and only once; to scan them again, choose another name" in refused(
        capsys, str(shop), "orders"
    )


def test_after_end_time_nothing_is_read_again(shop: Path, store: ProgressStore, capsys: Capture) -> None:
    text = shop.read_text()
    shop.write_text(text + 'end_time = "1970-01-01T00:00:00.000000001Z"\n')
    for arguments in (["orders"], ["--all"], ["--all", "--new-slot"]):
        assert "the contents of its tables at that time can no longer be read" in refused(capsys, str(shop), *arguments)
    assert asked(store) == []
    shop.write_text(text + 'end_time = "2199-01-01T00:00:00Z"\n')
    assert main(["rescan", str(shop), "orders"]) == 0


def test_a_new_slot_is_refused_while_a_run_uses_the_old_one(shop: Path, store: ProgressStore, capsys: Capture) -> None:
    with RunLock(shop.parent / ".cdc" / "orders.lock") as lock:
        assert lock.acquire()
        assert "is running from" in refused(capsys, str(shop), "--all", "--new-slot")
        assert main(["rescan", str(shop), "--all"]) == 0
    assert asked(store) == [(None, None, False)]


def test_show_says_what_was_asked_for_what_runs_and_what_is_complete(
    shop: Path, store: ProgressStore, capsys: Capture, cdc: Cdc
) -> None:
    def shown() -> tuple[str, dict[str, Any]]:
        capsys.readouterr()
        text = cdc("show", shop, "orders").out
        (found,) = json.loads(cdc("show", shop, "orders", "--json").out)["rescans"]
        return next(line.strip() for line in text.splitlines() if "rescan " in line), found

    assert main(["rescan", str(shop), "orders", "users", "--where", "id < 5"]) == 0
    line, found = shown()
    assert line.startswith("rescan            ")
    assert "users where id < 5: requested at" in line
    assert (found["state"], found["began"], found["where"], found["new_slot"]) == ("waiting", None, "id < 5", False)
    (record,) = store.rescans.of("orders")
    store.rescans.begin("orders", save(store, Timestamp(60)), [record.number], Timestamp(60))
    line, found = shown()
    assert line.endswith("running, all its rows are later than 60.0000000000")
    assert (found["state"], found["began"]) == ("running", "60.0000000000")
    save(store, Timestamp(61))
    line, found = shown()
    assert "complete, all its rows" in line
    assert found["state"] == "complete"
