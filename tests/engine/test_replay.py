"""Replays of dead letters, and keys that they block."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.dead_letter_rig import HOW, TABLE_NAME, TOTAL, Rig
from cdc_testing.engine import Journal
from cdc_testing.scripted import TABLE

from cdc_core import Op, RowBatch, Timestamp
from cdc_core.delivery.replay import DeadLetterReader
from cdc_core.engine.fencing import RunLock
from cdc_core.errors import ConfigError
from cdc_core.store.progress import DeadLetter


@pytest.mark.parametrize("how", HOW)
def test_later_rows_of_a_blocked_key_wait_in_later_steps_too(how: str, rig: Rig) -> None:
    rig.refuse(107, how=how)
    rig.complete(dead_letter_order="block_key")
    stage = "encode" if how == "encode" else "sink"
    behind = [(n, "blocked") for n in range(117, TOTAL + 1, 10)]
    assert rig.waiting() == [(107, stage), *behind]
    if how != "name":  # that sink had the rest of the slice already
        assert {n for n in rig.delivered() if n % 10 == 7} == set(range(7, 107, 10))
    others = [n for n in rig.delivered() if n % 10 != 7]
    assert set(others) == {n for n in range(1, TOTAL + 1) if n % 10 != 7}
    rig.correct()
    result, missing = rig.replay(dead_letter_order="block_key")
    assert (len(result.sent), len(result.kept), missing) == (len(behind) + 1, 0, 0)
    assert [n for n in rig.delivered() if n % 10 == 7][-len(behind) - 1 :] == list(range(107, TOTAL + 1, 10))
    assert rig.waiting() == []


def test_a_key_is_free_again_once_all_its_rows_were_sent(rig: Rig) -> None:
    rig.refuse(7)
    engine = rig.start(dead_letter_order="block_key")
    engine.step()
    rig.correct()
    result, _ = rig.replay(dead_letter_order="block_key")
    assert [row.row.column("updated")[0]["wall"].as_py() for row in result.sent] == list(range(7, 101, 10))
    rig.complete(dead_letter_order="block_key")
    assert rig.waiting() == []
    assert [fault for fault in rig.faults() if not fault.startswith("resolved")] == []


def test_what_is_refused_again_goes_on_waiting_and_holds_back_the_rows_behind_it(rig: Rig) -> None:
    rig.refuse(7, 8)
    engine = rig.start(dead_letter_order="block_key")
    engine.step()
    rig.refuse(27)
    result, missing = rig.replay(dead_letter_order="block_key")
    assert missing == 0
    assert [(bad.updated.wall, bad.stage) for bad in result.kept] == [
        (27, "encode"),
        *((n, "blocked") for n in range(37, 101, 10)),
    ]
    assert [n for n, _ in rig.waiting()] == list(range(27, 101, 10))
    assert [n for n in rig.delivered() if n % 10 == 7] == [7, 17]


def test_without_blocking_only_the_bad_rows_wait(rig: Rig) -> None:
    rig.refuse(7, 27)
    rig.complete()
    rig.refuse(27)
    result, _ = rig.replay()
    assert [n for n, _ in rig.waiting()] == [27]
    assert [bad.updated.wall for bad in result.kept] == [27]
    assert rig.delivered()[-1] == 7


def test_a_replay_is_a_run_of_its_own_above_what_is_resolved(rig: Rig) -> None:
    rig.refuse(7)
    engine = rig.complete()
    epoch = max(Journal(rig.directory).epochs)
    rig.correct()
    rig.replay()
    [*_, last] = Journal(rig.directory).of("rows")
    assert last == ["rows", epoch + 1, 0, 0, [[7, 7]]]
    assert engine.store.progress.save("t", epoch + 1, engine.progress, refused_since=Timestamp().to_datetime()) == 1


def test_rows_are_sent_again_only_once(rig: Rig) -> None:
    rig.refuse(7)
    rig.complete()
    rig.correct()
    rig.replay()
    result, missing = rig.replay()
    assert (result.sent, result.kept, missing) == ((), (), 0)
    assert rig.delivered().count(7) == 1


def test_a_crash_before_the_store_knows_of_a_replay_sends_the_rows_once_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.refuse(7)
    engine = rig.complete()
    rig.correct()

    def crash(*_: Any, **__: Any) -> None:
        raise OSError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.store.dead_letters), "mark_replayed", crash)
        with pytest.raises(OSError, match="crash"):
            rig.replay()
    assert rig.waiting() == [(7, "encode")]
    rig.replay()
    assert rig.delivered().count(7) == 2
    assert rig.waiting() == []


def test_all_rows_of_a_key_that_have_one_timestamp_are_found_in_order(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(n: int) -> RowBatch:
        id_, ns = pa.array([1], pa.int64()), pa.array([n], pa.int64())
        return RowBatch.of(
            TABLE,
            op=pa.array([Op.UPDATE], pa.uint8()),
            updated=RowBatch.timestamps(pa.array([7], pa.int64()), pa.array([0], pa.int32())),
            key=RowBatch.struct(TABLE.key_type, [id_]),
            after=RowBatch.struct(TABLE.after_type, [id_, ns]),
        )

    def found(rows: list[int], letters: int) -> list[tuple[int, int]]:
        monkeypatch.setattr(reader, "_rows", lambda: map(row, rows))
        letter = DeadLetter(table=TABLE_NAME, key="[1]", updated=Timestamp(7), stage="encode", error="")
        waiting = reader.find([dataclasses.replace(letter, number=number) for number in range(letters)])
        return [(each.row.column("after").field("n")[0].as_py(), len(each.letters)) for each in waiting]

    reader = DeadLetterReader(rig.feed())
    assert found([5], 1) == found([5, 5], 1) == [(5, 1)]
    assert found([5, 6], 2) == found([5, 6, 5, 6], 2) == [(5, 1), (6, 1)]
    assert found([5, 5], 2) == [(5, 2)]
    assert found([5, 6], 1) == [(6, 1)]  # a step that was repeated saw a newer value that the source fills in


def test_nothing_is_sent_again_while_the_changefeed_runs(rig: Rig) -> None:
    rig.refuse(7)
    rig.complete()
    with RunLock(rig.directory / "t.lock") as lock:
        assert lock.acquire()
        with pytest.raises(
            ConfigError, match=r"changefeed 't' is running from .*; stop it before you send its dead letters again"
        ):
            rig.replay()


def test_rows_whose_letters_are_gone_are_counted_and_go_on_waiting(rig: Rig) -> None:
    rig.refuse(7, 8)
    rig.complete()
    for path in rig.places.rglob("*.ndjson"):
        if '"n": 7}' in path.read_text():
            path.unlink()
    rig.correct()
    result, missing = rig.replay()
    assert missing == 2 - len(result.sent)
    assert len(rig.waiting()) == missing >= 1


def test_a_foreign_message_among_the_dead_letters_is_named(rig: Rig) -> None:
    rig.refuse(7)
    rig.complete()
    [path] = rig.places.rglob("*.ndjson")
    path.write_text(path.read_text() + '{"after": {"changefeed": "t"}, "key": []}\n')
    rig.correct()
    with pytest.raises(
        ConfigError, match=r"topic 't_dead_letters' at file://.* holds messages that are not its dead letters"
    ):
        rig.replay()
