"""Dead letters: what they hold, what progress knows of them, what a crash does to both."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.dead_letter_rig import HOW, TABLE_NAME, TOTAL, Rig
from cdc_testing.engine import counter_feed, run_feed
from cdc_testing.local_engine import LocalEngine
from cdc_testing.scripted import TABLE
from cdc_testing.thread_host import ThreadHost

from cdc_core import Changefeed, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import row_of
from cdc_core.engine import attempt
from cdc_core.engine.checks import check_dead_letters
from cdc_core.engine.driver_log import DeadLetterLog
from cdc_core.errors import BadRowError, ConfigError, RefusedRowsError, RetryableSinkError, TerminalError
from cdc_core.plugins.host import PluginHost


@pytest.mark.parametrize("how", HOW)
def test_a_bad_row_becomes_a_dead_letter_and_all_others_arrive(how: str, rig: Rig) -> None:
    rig.refuse(17, 205, 400, how=how)
    engine = rig.complete()
    stage = "encode" if how == "encode" else "sink"
    assert rig.waiting() == [(17, stage), (205, stage), (400, stage)]
    assert sorted(set(rig.delivered())) == [n for n in range(1, TOTAL + 1) if n not in (17, 205, 400)]
    assert [fault for fault in rig.faults() if "first came after" in fault] == []
    assert engine.progress.counters["dead_letters"] == 3
    assert engine.progress.counters["rows"] == TOTAL


def test_a_dead_letter_says_which_row_it_was_and_what_was_wrong(rig: Rig) -> None:
    rig.refuse(17)
    rig.complete()
    [letter] = rig.letters()
    payload = letter.pop("payload")
    assert letter == {
        "changefeed": "t",
        "table": TABLE_NAME,
        "key": [7],
        "updated": "17.0000000000",
        "op": "update",
        "stage": "encode",
        "error": "there is no text for 17",
        "row": {"id": 7, "n": 17},
        "schema_version": 1,
    }
    row = row_of({"payload": payload})
    assert row.column("after").to_pylist() == [{"id": 7, "n": 17}]
    assert row.schema == TABLE


@pytest.mark.parametrize(("how", "owner"), [("encode", "encoder 'plain'"), ("name", "sink 'journal'")])
@pytest.mark.parametrize("on_error", ["fail", "pause"])
def test_without_dead_letters_the_changefeed_ends_with_a_sentence_that_names_the_row(
    how: str, owner: str, on_error: str, rig: Rig
) -> None:
    rig.refuse(117, how=how)
    feed = counter_feed(rig.directory, options={"on_error": on_error}, total=TOTAL, rows_per_step=100)
    engine = LocalEngine(feed, rig.directory)
    engine.run()
    engine.step()
    with pytest.raises(BadRowError) as raised:
        engine.step()
    stage = "encode" if how == "encode" else "sink"
    reason = "there is no text for 117" if how == "encode" else "117 is refused"
    assert str(raised.value) == (
        f"the row of table public.counter with key {{'id': 17}}, updated 117.0000000000 was refused by {owner} (stage"
        f" {stage}): {reason}; change the row, or fix the cause of the refusal, or set on_error='dead_letter' to store"
        " such rows as dead letters and deliver the others"
    )
    assert engine.high_water == Timestamp(100)


def test_rows_are_durable_in_the_dead_letters_before_progress_says_so(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.refuse(17)
    engine = rig.start()
    seen: list[int] = []
    save = type(engine.store.progress).save

    def saving(*args: Any, **told: Any) -> int:
        seen.append(len(rig.letters()))
        return save(*args, **told)

    monkeypatch.setattr(type(engine.store.progress), "save", saving)
    engine.step()
    assert seen == [1]


def test_a_crash_between_dead_letters_and_progress_leaves_each_row_there_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.refuse(17, 18)
    engine = rig.start()

    def crash(*_: Any, **__: Any) -> None:
        raise RetryableSinkError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.store.progress), "save", crash)
        with pytest.raises(RetryableSinkError):
            engine.step()
    letters = rig.letters()
    assert len(letters) == 2
    assert engine.store.dead_letters.of("t") == []
    rig.complete()
    assert rig.waiting() == [(17, "encode"), (18, "encode")]
    assert rig.letters() == letters, "a repeated plan gives the same letters under the same names"
    rig.correct()
    result, missing = rig.replay()
    assert (len(result.sent), len(result.kept), missing) == (2, 0, 0)
    assert [rig.delivered().count(n) for n in (16, 17, 18)] == [2, 1, 1]


def test_dead_letters_that_cannot_be_written_now_hold_the_step_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.refuse(17)
    engine = rig.start()

    def unreachable(*_: Any, **__: Any) -> None:
        raise RetryableSinkError("the place of the dead letters is out of reach")

    sink = type(Parts(rig.feed().dead_letter).open_sink())  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr(sink, "flush", unreachable)
        with pytest.raises(RetryableSinkError, match="out of reach"):
            engine.step()
    assert not engine.high_water
    rig.complete()
    assert rig.waiting() == [(17, "encode")]


def test_what_is_wrong_with_the_place_of_the_dead_letters_may_be_repaired(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("the password is wrong", repairable=True)

    monkeypatch.setattr("cdc_core.engine.checks.check_sink", refuse)
    with pytest.raises(ConfigError, match="option 'dead_letter': the password is wrong") as refused:
        check_dead_letters(rig.feed(), ())
    assert refused.value.repairable


def test_a_row_that_even_the_dead_letters_do_not_take_ends_the_changefeed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.refuse(17)
    feed = rig.feed()
    assert feed.dead_letter is not None
    sink = feed.dead_letter.sink
    refusing = dataclasses.replace(sink, registration=dataclasses.replace(sink.registration, refuses_rows=True))
    engine = LocalEngine(
        dataclasses.replace(feed, dead_letter=dataclasses.replace(feed.dead_letter, sink=refusing)), rig.directory
    )
    engine.run()

    def refuse(_sink: Any, _rows: Any) -> None:
        raise RefusedRowsError("too large")

    monkeypatch.setattr(type(Parts(feed.dead_letter).open_sink()), "emit", refuse)
    with pytest.raises(BadRowError) as raised:
        engine.step()
    assert str(raised.value) == (
        f"the row of table {TABLE_NAME} with key [7], updated 17.0000000000, was refused (there is no text for 17), and"
        " sink 'cloudstorage' of the dead letters refuses it too: too large; choose another dead_letter"
    )


def test_more_bad_rows_than_the_budget_end_the_changefeed_with_all_of_them_in_the_dead_letters(rig: Rig) -> None:
    rig.refuse(3, 103, 203)
    engine = rig.start(dead_letter_max=2)
    engine.step()
    engine.step()
    with pytest.raises(TerminalError) as raised:
        engine.step()
    assert str(raised.value) == (
        "changefeed 't': 3 rows refused within an hour, but dead_letter_max is 2; the last one is in table"
        f" {TABLE_NAME} with key [3], updated 203.0000000000, stage encode: there is no text for 203; fix the cause of"
        " the refusals, or raise dead_letter_max"
    )
    assert rig.waiting() == [(3, "encode"), (103, "encode"), (203, "encode")]
    assert engine.high_water == Timestamp(300)


def test_the_budget_counts_the_dead_letters_of_earlier_runs(rig: Rig) -> None:
    rig.refuse(3, 103, 203)
    engine = rig.start(dead_letter_max=2)
    engine.step()
    engine.step()
    engine = rig.start(dead_letter_max=2)
    with pytest.raises(TerminalError, match="3 rows refused within an hour"):
        engine.step()
    engine = rig.complete(dead_letter_max=2)
    assert rig.waiting()[-1] == (203, "encode")


def test_a_slice_whose_rows_are_all_bad_ends_early_and_saves_nothing(rig: Rig) -> None:
    rig.refuse(*range(1, TOTAL + 1))
    engine = rig.start(dead_letter_max=5)
    with pytest.raises(TerminalError, match="more than 5 rows of one slice were refused; the last one is in"):
        engine.step()
    assert rig.waiting() == []
    assert not engine.high_water


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what `DeadLetterLog` warned of; on threads, the warnings of a planner include those of its driver."""
    return [record.getMessage() for record in caplog.records if record.name == DeadLetterLog.__module__]


def test_each_dead_letter_is_logged_up_to_a_number(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.refuse(3)
    engine = rig.start()
    engine.step()
    told = DeadLetterLog("t", engine.store)
    with caplog.at_level(logging.WARNING):
        assert told.poll() == 1
        rig.refuse(*range(101, 134), 205)
        engine.step()
        assert told.poll() == told.poll() == 34
        engine.step()
        assert told.poll() == 35
    said = warnings(caplog)
    assert len(said) == 12
    assert said[0].startswith(f"changefeed 't': refused the row of table {TABLE_NAME} with key [")
    assert "(stage encode): there is no text for 1" in said[0]
    assert said[10] == "changefeed 't': refused 23 more rows"
    assert "there is no text for 205" in said[11]


def test_dead_letters_of_the_last_step_of_a_run_are_logged_too(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig.refuse(3, 103)
    with caplog.at_level(logging.WARNING), pytest.raises(TerminalError, match="2 rows refused within an hour"):
        run_feed(rig.feed(dead_letter_max=1), store=rig.store, state_dir=tmp_path, host=ThreadHost(), once=True)
    assert [text.rpartition(": ")[2] for text in warnings(caplog)] == [
        "there is no text for 3",
        "there is no text for 103",
    ]


def test_the_sink_of_the_dead_letters_is_opened_for_the_first_bad_row_and_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ResolvedChangefeed] = []
    open_sink = Parts.open_sink
    engine = rig.start()
    engine.step()

    def counting(parts: Parts) -> Any:
        if parts._feed.destination.endswith("/dead"):
            opened.append(parts._feed)
        return open_sink(parts)

    monkeypatch.setattr(Parts, "open_sink", counting)
    engine.step()
    assert opened == []
    rig.refuse(203, 303)
    engine.until(Timestamp(TOTAL))
    assert len(opened) == 1
    assert attempt._dead_letter_sinks is not attempt._sinks


@pytest.mark.parametrize("place", ["files", "files/dead", ""])
def test_dead_letters_among_the_files_of_the_sink_are_refused(place: str, rig: Rig, tmp_path: Path) -> None:
    from cdc_core.engine.checks import check_dead_letters

    feed = resolve(
        Changefeed(
            name="t",
            source="postgresql://u@h/d",
            tables=("counter",),
            sink=f"file://{tmp_path}/files",
            options={"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/{place}"},
        ),
        PluginHost.load(),
    )
    with pytest.raises(ConfigError, match=r"would write its dead letters to .*, among the files of its sink"):
        check_dead_letters(feed, [TABLE])
