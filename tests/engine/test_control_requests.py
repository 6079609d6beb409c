"""New rescans reach the planners of a process, and the store is asked once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.stored import DEFINITION, ask_rescan

from cdc_core import Timestamp
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.control_requests import ControlRequests
from cdc_core.errors import RetryableError
from cdc_core.store.progress import ProgressStore, store_url


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    with closing(ProgressStore(store_url(tmp_path / "state"))) as store:
        yield store


def begun(store: ProgressStore, directory: Path, name: str) -> tuple[ControlRequests, AttemptChannel]:
    channel = AttemptChannel(directory / name)
    channel.create()
    store.changefeeds.register(name, DEFINITION)
    return ControlRequests(name, store, channel), channel


def test_one_question_a_second_serves_all_changefeeds_of_a_process(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, str]] = []
    ask = store.rescans.all_waiting
    monkeypatch.setattr(store.rescans, "all_waiting", lambda: answers.append(ask()) or answers[-1])
    made = [begun(store, tmp_path, f"feed{number}") for number in range(20)]
    ask_rescan(store, "feed3", table="t")
    ask_rescan(store, "feed4", table=None, new_slot=True)
    for requests, _ in made:
        requests.poll()
    assert len(answers) == 1
    assert [number for number, (_, channel) in enumerate(made) if channel.rescans()] == [3]


def test_what_is_passed_on_changes_with_each_rescan_and_when_they_have_begun(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.engine.control_requests._POLL_S", 0.0)
    requests, channel = begun(store, tmp_path, "feed")
    seen = []
    for _ in range(2):
        ask_rescan(store, "feed", table="t")
        requests.poll()
        seen.append(channel.rescans())
    numbers = [waiting.number for waiting in store.rescans.waiting("feed", new_slot=False)]
    store.rescans.begin("feed", store.changefeeds.begin_attempt("feed"), numbers, Timestamp(7))
    requests.poll()
    assert len({*seen, channel.rescans()}) == 3
    assert channel.rescans() == ""


def test_a_store_out_of_reach_is_no_reason_to_end(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> dict[str, str]:
        raise RetryableError("no")

    requests, channel = begun(store, tmp_path, "feed")
    monkeypatch.setattr(store.rescans, "all_waiting", refuse)
    requests.poll()
    assert channel.rescans() == ""
