"""`cdc drop`: what it removes, what it asks, and what it refuses to touch."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.plugin import SIMULATED
from cdc_conformance.simulated import SimulatedDatabase
from cdc_conformance.simulated.rangefeed import SimulatedRangefeed
from cdc_testing.command import Cdc
from cdc_testing.engine import Journal
from cdc_testing.scripted import Script

from cdc_core.cli.main import main
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import DeadLetter, Progress, ProgressStore, store_url
from cdc_core.timestamp import Timestamp

DEFINITION = {"source": "paper://user:***@desk/db", "tables": ["public.counter"], "sink": "shelf://room"}
Capture = pytest.CaptureFixture[str]
PLUGINS = (SIMULATED,)
Answer = Callable[[str], None]


@pytest.fixture
def store(file: Path) -> ProgressStore:
    """A store that knows the changefeed, which has run."""
    store = ProgressStore(store_url(file.parent / ".cdc"))
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save(
        "orders", store.changefeeds.begin_attempt("orders"), Progress(token={"n": 7}), dead_letters=[LETTER]
    )
    return store


LETTER = DeadLetter(table="db.public.counter", key="[1]", updated=Timestamp(5), stage="sink", error="no")


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Returns a function that lets the user at a terminal answer the next question."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda text: monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))


def dropped(directory: Path) -> int:
    """Return how often the source was told to drop."""
    return Journal(directory).events.count(["drop"])


def test_a_changefeed_is_dropped_at_the_source_and_forgotten(
    file: Path, store: ProgressStore, answer: Answer, capsys: Capture
) -> None:
    answer("y")
    assert main(["drop", str(file)]) == 0
    assert dropped(file.parent) == 1
    assert store.changefeeds.find("orders") is None
    assert store.dead_letters.of("orders") == []
    shown = capsys.readouterr().out
    assert "dropped at the source paper://user:***@desk/db: whatever the changefeed created there" in shown
    assert "forgotten: no position yet, and 1 dead letter that was not replayed" in shown
    assert "changefeed 'orders' is removed\n" in shown
    assert "hunter2" not in shown


def test_nothing_is_removed_without_consent(file: Path, store: ProgressStore, answer: Answer, capsys: Capture) -> None:
    answer("n")
    assert main(["drop", str(file), "orders"]) == 1
    assert dropped(file.parent) == 0
    assert store.changefeeds.find("orders") is not None
    assert capsys.readouterr().out.endswith("nothing was removed\n")


def test_without_a_terminal_it_needs_yes(file: Path, store: ProgressStore, cdc: Cdc) -> None:
    assert cdc.refused("drop", file).endswith("and standard input is not a terminal; use --yes\n")
    assert store.changefeeds.find("orders") is not None
    assert main(["drop", str(file), "--yes"]) == 0
    assert store.changefeeds.find("orders") is None


def test_a_drop_that_fails_half_way_is_repeated(file: Path, store: ProgressStore, cdc: Cdc) -> None:
    Script(file.parent).order("drop", "RetryableRangefeedError the desk is away")
    assert cdc("drop", file, "--yes", status=1).err == (
        "error: the desk is away; repeat the command, or use --forget-only if the source no longer exists\n"
    )
    assert store.changefeeds.find("orders") is not None
    assert main(["drop", str(file), "--yes"]) == 0
    assert (dropped(file.parent), store.changefeeds.find("orders")) == (1, None)


def test_one_whose_source_is_gone_is_only_forgotten(file: Path, store: ProgressStore, capsys: Capture) -> None:
    file.write_text(file.read_text().replace("hunter2", "${NOT_SET}").replace("paper://", "unheard-of://"))
    assert main(["drop", str(file), "--forget-only", "--yes"]) == 0
    assert (dropped(file.parent), store.changefeeds.find("orders")) == (0, None)
    assert "left at the source paper://user:***@desk/db: whatever it created there" in capsys.readouterr().out


@pytest.mark.parametrize("forget_only", [False, True])
def test_the_definition_in_the_store_is_enough(
    file: Path, store: ProgressStore, monkeypatch: pytest.MonkeyPatch, forget_only: bool
) -> None:
    monkeypatch.setenv("DESK", "hunter2")
    file.write_text(file.read_text().replace("hunter2", "${DESK}"))
    store.changefeeds.register("orders", resolve(read_changefeed(file), PluginHost.load()).definition())
    file.unlink()
    arguments = ["drop", "orders", "--store", str(file.parent / ".cdc"), *["--forget-only"] * forget_only, "--yes"]
    assert main(arguments) == 0
    assert (dropped(file.parent), store.changefeeds.find("orders")) == (int(not forget_only), None)


def test_another_source_is_not_touched(file: Path, store: ProgressStore, cdc: Cdc) -> None:
    file.write_text(file.read_text().replace("@desk", "@attic"))
    assert "was started on the source paper://user:***@desk/db, not paper://user:***@attic/db" in cdc.refused(
        "drop", file, "--yes"
    )
    assert (dropped(file.parent), store.changefeeds.find("orders") is None) == (0, False)


@pytest.mark.parametrize(("phase", "status"), [("running", 2), ("paused", 2), ("stopped", 0)])
def test_one_that_runs_on_another_host_is_refused(
    file: Path, store: ProgressStore, capsys: Capture, phase: str, status: int
) -> None:
    store.statuses.save(
        "orders", store.changefeeds.begin_attempt("orders"), {"phase": phase, "host": "elsewhere", "pid": 7}
    )
    assert main(["drop", str(file), "--yes"]) == status
    assert ("is being run by `cdc run` on elsewhere (process 7); stop it first" in capsys.readouterr().err) == (
        status == 2
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["shop.toml", "--only", "x"], "--only and a second --state require --orphans"),
        (["shop.toml", "--state", "a", "--state", "b"], "--only and a second --state require --orphans"),
        (["--orphans", "simulated:///db", "orders"], "--orphans takes the URI of a source"),
        (["--orphans", "simulated:///db", "--forget-only"], "--orphans takes the URI of a source"),
        (["--orphans", "simulated:///db", "--store", "x"], "--orphans takes the URI of a source"),
        (["--orphans", "simulated:///db", "--yes"], "without --state, every changefeed of the source looks like an"),
        (["--orphans", "counter:///db"], "there is no rangefeed for URIs that begin with 'counter://'"),
        (["--orphans", "host=db password=pw"], "there is no rangefeed for a text without '://', which is not a URI;"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], complaint: str, cdc: Cdc) -> None:
    assert complaint in cdc.refused("drop", *arguments)


class TestOrphans:
    """Two changefeeds of one source: a store knows `kept`, none knows `lost`."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> SimulatedDatabase:
        database = SimulatedDatabase.create(tmp_path / "db")
        database.begin_reading("lost")
        return database

    @pytest.fixture
    def kept(self, tmp_path: Path, source: SimulatedDatabase) -> str:
        store = ProgressStore(store_url(tmp_path / "state"))
        feed_id = store.changefeeds.register("orders", DEFINITION).feed_id
        source.begin_reading(feed_id)
        return feed_id

    @pytest.fixture
    def command(self, tmp_path: Path, source: SimulatedDatabase) -> list[str]:
        return ["drop", "--orphans", f"simulated://{source.directory}", "--state", str(tmp_path / "state")]

    def test_only_what_no_store_knows_is_dropped(
        self, source: SimulatedDatabase, kept: str, command: list[str], answer: Answer, capsys: Capture, cdc: Cdc
    ) -> None:
        answer("y")
        assert main(command) == 0
        assert set(source.protected()) == {kept}
        shown = capsys.readouterr().out
        assert "of changefeeds that none of the named progress stores knows:\n  dropped: lost (protected " in shown
        assert "A changefeed whose progress is in another store loses its history" in shown
        assert shown.endswith("lost is dropped\n")
        assert cdc(*command).out == f"there are no orphans at simulated://{source.directory}\n"

    def test_what_may_be_another_programs_stays_unless_it_is_named(
        self, source: SimulatedDatabase, kept: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        created = SimulatedRangefeed.created
        monkeypatch.setattr(
            SimulatedRangefeed,
            "created",
            lambda self: [dataclasses.replace(entry, sure=entry.name == kept) for entry in created(self)],
        )
        assert main([*command, "--yes"]) == 0
        assert set(source.protected()) == {kept, "lost"}
        assert (
            "may belong to another program, kept unless you add --only lost: lost (protected "
            in capsys.readouterr().out
        )
        assert main([*command, "--only", "lost", "--yes"]) == 0
        assert set(source.protected()) == {kept}

    def test_the_others_stay_when_one_is_named(self, source: SimulatedDatabase, kept: str, command: list[str]) -> None:
        source.begin_reading("forlorn")
        assert main([*command, "--only", "forlorn", "--yes"]) == 0
        assert set(source.protected()) == {kept, "lost"}

    def test_what_a_store_knows_cannot_be_named(
        self, source: SimulatedDatabase, kept: str, command: list[str], capsys: Capture
    ) -> None:
        assert main([*command, "--only", kept, "--yes"]) == 2
        assert "this object belongs to changefeed 'orders'; use `cdc drop FILE orders`" in capsys.readouterr().err
        assert main([*command, "--only", "los", "--yes"]) == 2
        assert "--only los: no changefeed has created this object at the source" in capsys.readouterr().err
        assert set(source.protected()) == {kept, "lost"}

    def test_every_store_must_be_there(self, source: SimulatedDatabase, command: list[str], cdc: Cdc) -> None:
        assert "there is no progress store" in cdc.refused(*command, "--yes")
        assert set(source.protected()) == {"lost"}

    def test_nothing_is_dropped_without_consent(
        self, source: SimulatedDatabase, kept: str, command: list[str], answer: Answer
    ) -> None:
        assert main(command) == 2
        answer("n")
        assert main(command) == 1
        assert set(source.protected()) == {kept, "lost"}
