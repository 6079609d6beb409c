"""`cdc replay-dead-letters`: what it shows, what it sends, and how it ends."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from cdc_conformance.reference.sink import REFERENCE_SINK
from cdc_testing.command import Cdc
from cdc_testing.components import plugin, rangefeed, sink, source_of
from cdc_testing.engine import Journal
from cdc_testing.local_engine import LocalEngine
from cdc_testing.scripted import Script

from cdc_core import Timestamp
from cdc_core.cli.main import main
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.engine.fencing import RunLock
from cdc_core.plugins.entry_points import PLUGINS, Published, published
from cdc_core.plugins.host import PluginHost

TOML = """
[changefeed.orders]
source = "paper://user:hunter2@desk/db"
tables = ["public.counter"]
sink = "shelf://room"
[changefeed.orders.options]
control = "{directory}"
total = 40
rows_per_step = 20
keys = 10
resolved = true
"""


@cache
def installed() -> list[Published]:
    return [claim for claims in published(PLUGINS).values() for claim in claims]


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted source and sink beside what is installed."""
    scripted = plugin(
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        sink(options="cdc_testing.scripted:JournalOptions", output="messages"),
        REFERENCE_SINK,
    )
    host = PluginHost([*installed(), source_of(scripted, "cdc-paper")])
    monkeypatch.setattr(PluginHost, "load", lambda: host)


class Feed:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "shop.toml"
        self.write(dead_letter=f"file://{directory}/dead")

    def write(self, *, dead_letter: str | None, order: str = "block_key") -> None:
        text = TOML.format(directory=self.directory)
        if dead_letter is not None:
            text += f'on_error = "dead_letter"\ndead_letter = "{dead_letter}"\ndead_letter_order = "{order}"\n'
        self.file.write_text(text)

    def refuse(self, *rows: int) -> None:
        Script(self.directory).order("bad-rows", json.dumps({"how": "name", "rows": rows}))

    def run(self) -> LocalEngine:
        state = self.directory / ".cdc"
        engine = LocalEngine(resolve(read_changefeed(self.file, None), PluginHost.load()), state)
        engine.run()
        engine.until(Timestamp(40))
        engine.store.close()
        return engine

    def replay(self, *arguments: str) -> int:
        return main(["replay-dead-letters", str(self.file), *arguments])


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def test_rows_that_wait_are_listed(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed.refuse(17)
    feed.run()
    assert feed.replay("--list") == 0
    header, first, *behind = capsys.readouterr().out.splitlines()
    assert header.split() == ["number", "refused", "at", "table", "key", "updated", "stage", "error"]
    assert first.split()[3:] == ["db.public.counter", "[7]", "17.0000000000", "sink", "17", "is", "refused"]
    assert [line.split()[6] for line in behind] == ["blocked", "blocked"]
    assert all([7, 17] not in event[4] for event in Journal(feed.directory).of("rows"))


@pytest.mark.parametrize("place", ["file://{}/dead", "reference://{}/dead"], ids=["files", "messages"])
def test_rows_are_sent_again_once_they_are_taken(place: str, feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed.write(dead_letter=place.format(feed.directory))
    feed.refuse(17)
    feed.run()
    feed.refuse()
    assert feed.replay() == 0
    assert capsys.readouterr().out == "changefeed 'orders': 3 rows replayed, 0 dead letters remaining\n"
    assert Journal(feed.directory).of("rows")[-1][4] == [[7, 17], [7, 27], [7, 37]]
    assert feed.replay() == 0
    assert capsys.readouterr().out == "changefeed 'orders' has no dead letters\n"
    assert feed.replay("--list") == 0


def test_what_is_refused_again_is_shown_and_exits_with_1(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed.refuse(17, 25)
    feed.run()
    feed.refuse(25)
    assert feed.replay() == 1
    first, *kept = capsys.readouterr().out.splitlines()
    assert first == "changefeed 'orders': 3 rows replayed, 2 dead letters remaining"
    assert kept == [
        "  the row of table public.counter with key {'id': 5}, updated 25.0000000000 (stage sink): 25 is refused",
        "  the row of table public.counter with key {'id': 5}, updated 35.0000000000 (stage blocked): an earlier row of"
        " its key was refused and is still among the dead letters",
    ]


def test_a_row_that_is_given_up_holds_nothing_back(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed.refuse(17)
    feed.run()
    assert feed.replay("--list") == 0
    number = capsys.readouterr().out.splitlines()[1].split()[0]
    assert feed.replay("--give-up", "999") == 2
    assert "changefeed 'orders' has no dead letter with the number 999; see --list" in capsys.readouterr().err
    assert feed.replay("--give-up", number) == 0
    assert capsys.readouterr().out == ("changefeed 'orders': 2 rows replayed, 0 dead letters remaining, 1 discarded\n")
    assert Journal(feed.directory).of("rows")[-1][4] == [[7, 27], [7, 37]]
    assert feed.replay() == 0


@pytest.mark.parametrize("dead_letter", ["webhook-https://hook.example.com/x", None], ids=["no-reader", "no-option"])
def test_rows_are_given_up_where_their_dead_letters_cannot_be_read(
    dead_letter: str | None, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.refuse(17)
    feed.run()
    feed.write(dead_letter=dead_letter)
    assert feed.replay("--give-up", "1", "--give-up", "2") == 2
    capsys.readouterr()
    assert feed.replay("--give-up", "1", "--give-up", "2", "--give-up", "3") == 0
    assert capsys.readouterr().out == ("changefeed 'orders': 0 rows replayed, 0 dead letters remaining, 3 discarded\n")
    assert feed.replay() == 0
    assert capsys.readouterr().out == "changefeed 'orders' has no dead letters\n"


@pytest.mark.parametrize("order", ["sink-check", "sink-prepare", "flush"])
def test_a_row_is_given_up_only_when_the_others_could_be_sent(
    order: str, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.refuse(17)
    feed.run()
    feed.refuse()
    Script(feed.directory).order(order, "RetryableSinkError the shelf is closed")
    assert feed.replay("--give-up", "1") == 1
    assert feed.replay("--list") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert feed.replay("--give-up", "1") == 0
    assert "2 rows replayed, 0 dead letters remaining, 1 discarded" in capsys.readouterr().out


@pytest.mark.parametrize("give_up", [(), ("--give-up", "1")])
def test_a_store_that_is_not_there_is_refused_and_not_created(
    give_up: tuple[str, ...], feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert feed.replay("--state", str(tmp_path / "typo"), *give_up) == 2
    assert "changefeed 'orders' is not known: there is no progress store" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


def test_a_number_that_no_row_has_is_refused_also_when_none_waits(
    feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.run()
    assert feed.replay("--give-up", "1") == 2
    assert "changefeed 'orders' has no dead letter with the number 1" in capsys.readouterr().err


def test_to_list_rows_and_to_give_some_up_is_not_one_thing(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    assert feed.replay("--list", "--give-up", "1") == 2
    assert "use only one of them" in capsys.readouterr().err


def test_rows_are_sent_again_from_a_host_that_never_ran_the_changefeed(
    feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed.refuse(17)
    feed.run()
    feed.refuse()
    store = (feed.directory / ".cdc").rename(tmp_path / "elsewhere") / "progress.sqlite"
    assert feed.replay("--state", f"sqlite:///{store}") == 0
    assert "3 rows replayed" in capsys.readouterr().out


def test_a_running_changefeed_must_be_stopped_first(feed: Feed, capsys: pytest.CaptureFixture[str]) -> None:
    feed.refuse(17)
    feed.run()
    with RunLock(feed.directory / ".cdc" / "orders.lock") as lock:
        assert lock.acquire()
        assert feed.replay() == 2
    assert "changefeed 'orders' is running from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        (None, 2, "changefeed 'orders' has 3 dead letters, but no option"),
        ("shelf://other?control={}", 2, "cannot be read back, because sink 'shelf' has no reader; choose another"),
        ("file://{}/elsewhere", 1, "3 rows are missing from the dead-letter sink"),
    ],
)
def test_letters_that_cannot_be_read_stay(feed: Feed, place: str | None, status: int, said: str, cdc: Cdc) -> None:
    feed.refuse(17)
    feed.run()
    feed.write(dead_letter=place and place.format(feed.directory))
    told = cdc("replay-dead-letters", feed.file, status=status)
    assert said in (told.err if status == 2 else told.out)
    assert len(cdc("replay-dead-letters", feed.file, "--list").out.splitlines()) == 1 + 3


def test_check_has_a_line_for_the_dead_letters(feed: Feed, cdc: Cdc) -> None:
    assert f"  dead letters cloudstorage file://{feed.directory}/dead … ok" in cdc("check", feed.file).out.splitlines()


@pytest.mark.parametrize("dead_letter", ["parchment://desk", "shelf://room?topic=x", "file://{file}/below"])
def test_dead_letters_that_cannot_be_are_refused_before_anything_starts(feed: Feed, dead_letter: str, cdc: Cdc) -> None:
    feed.write(dead_letter=dead_letter.format(file=feed.file))
    told = cdc("check", feed.file, status=2)
    assert "changefeed 'orders', option 'dead_letter': " in told.out + told.err
