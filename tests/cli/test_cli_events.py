"""`cdc events`: what it prints of the event log, and of which changefeeds."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.stored import DEFINITION

from cdc_core.cli import show as command
from cdc_core.cli.main import main
from cdc_core.cli.show import event_text, since_of
from cdc_core.errors import ConfigError
from cdc_core.store.event_values import Event
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def store(file: Path) -> ProgressStore:
    store = ProgressStore(store_url(file.parent / ".cdc"))
    store.changefeeds.register("orders", DEFINITION)
    store.changefeeds.register("users", DEFINITION)
    store.events.note("changefeed_failed", "orders", message="postgresql://u:hunter2@h/d is gone")
    store.events.note("node_left", node="one")
    return store


def printed(capsys: Capture, *arguments: str) -> list[str]:
    assert main(["events", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_events_are_shown_of_all_or_of_one_by_file_or_by_store(
    file: Path, store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = printed(capsys, str(file))
    assert [line.split("UTC ")[1].split(" (")[0] for line in whole] == [
        "orders create_changefeed",
        "users create_changefeed",
        "orders changefeed_failed postgresql://u:hunter2@h/d is gone",
        "node_left node one",
    ]
    assert printed(capsys, str(file), "orders") == [whole[0], whole[2]]
    assert printed(capsys, "orders", "--store", str(file.parent / ".cdc")) == [whole[0], whole[2]]
    monkeypatch.setenv("CDC_STORE", store.url)
    assert printed(capsys, "--kind", "node_left", "--kind", "changefeed_failed") == whole[2:]
    assert printed(capsys, "--limit", "1") == whole[3:]
    assert printed(capsys, "--since", "1h") == whole
    assert printed(capsys, "--since", "2099-01-01") == []


def test_json_lines_are_the_whole_events(file: Path, store: ProgressStore, capsys: Capture) -> None:
    values = [json.loads(line) for line in printed(capsys, str(file), "--json")]
    assert values == [event.to_json() for event in store.events.read()]


def test_following_prints_each_new_event_once(
    file: Path, store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter([["resumed"], [], ["paused", "resumed"]])

    def sleep(_seconds: float) -> None:
        try:
            for what in next(written):
                store.events.note(f"changefeed_{what}", "orders")
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert main(["events", str(file), "orders", "--since", "2099-01-01", "--follow", "--json"]) == 130
    found = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert found == ["changefeed_resumed", "changefeed_paused", "changefeed_resumed"]


def test_mistakes_are_named(file: Path, cdc: Cdc) -> None:
    assert "no events of kind 'made_up'" in cdc.refused("events", file, "--kind", "made_up")
    assert "there is no progress store" in cdc.refused("events", file)
    ProgressStore(store_url(file.parent / ".cdc")).changefeeds.register("users", DEFINITION)
    assert "known: users" in cdc.refused("events", file, "orders")
    for text in ("yesterday", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(ConfigError, match=rf"--since: '{re.escape(text)}' is not a time"):
            since_of(text, now=MOMENT)


def test_since_takes_a_duration_or_a_moment() -> None:
    assert since_of("1h30m", now=MOMENT) == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
    assert since_of("2026-01-31T10:30:00", now=MOMENT) == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
    assert since_of("2026-01-31T10:30:00+02:00", now=MOMENT) == datetime(2026, 1, 31, 8, 30, tzinfo=UTC)


def test_a_repeated_event_says_how_often() -> None:
    event = Event(kind="changefeed_retried", at=MOMENT, changefeed="orders", times=3, last_at=MOMENT)
    assert event_text(event).endswith("orders changefeed_retried [3 times, the last at 2026-01-31 12:00:00 UTC]")
