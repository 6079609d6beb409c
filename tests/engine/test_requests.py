"""New rescans reach the planners of a process, and the store is asked once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_testing.stored import DEFINITION

from cdc_core import Timestamp
from cdc_core.engine.requests import RescanFlag, RescanRequests
from cdc_core.errors import RetryableError
from cdc_core.store.progress import ProgressStore, store_url


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    store = ProgressStore(store_url(tmp_path / "state"))
    yield store
    store.close()


@pytest.fixture
def questions(store: ProgressStore, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    answers: list[dict[str, str]] = []
    ask = store.all_waiting_rescans
    monkeypatch.setattr(store, "all_waiting_rescans", lambda: answers.append(ask()) or answers[-1])
    return answers


def requests(store: ProgressStore, directory: Path, count: int) -> tuple[list[RescanRequests], list[RescanFlag]]:
    for number in range(count):
        (directory / str(number)).mkdir()
        store.register(f"feed{number}", DEFINITION)
    made = [RescanRequests(f"feed{number}", store, directory / str(number)) for number in range(count)]
    return made, [RescanFlag(directory / str(number)) for number in range(count)]


def test_one_question_a_second_serves_all_changefeeds_of_a_process(
    store: ProgressStore, questions: list[dict[str, str]], tmp_path: Path
) -> None:
    made, flags = requests(store, tmp_path, 20)
    store.ask_rescan("feed3", table="t")
    store.ask_rescan("feed4", table=None, new_slot=True)
    for each in made:
        each.look()
    assert len(questions) == 1
    assert [number for number, flag in enumerate(flags) if flag.look()] == [3]


def test_a_flag_changes_with_each_rescan_and_when_they_have_begun(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.engine.requests._LOOK_S", 0.0)
    (request,), (flag,) = requests(store, tmp_path, 1)
    seen = []
    for _ in range(2):
        store.ask_rescan("feed0", table="t")
        request.look()
        seen.append(flag.look())
    numbers = [waiting.number for waiting in store.waiting_rescans("feed0", new_slot=False)]
    store.begin_rescans("feed0", store.begin_attempt("feed0"), numbers, Timestamp(7))
    request.look()
    assert len({*seen, flag.look()}) == 3
    assert flag.look() == ""


def test_a_store_out_of_reach_is_no_reason_to_end(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> dict[str, str]:
        raise RetryableError("no")

    (request,), (flag,) = requests(store, tmp_path, 1)
    monkeypatch.setattr(store, "all_waiting_rescans", refuse)
    request.look()
    assert flag.look() == ""
