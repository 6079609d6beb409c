"""Records of what was delivered, resolved marks, and dead letters in the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cdc_testing.stored import DEFINITION, progress

from cdc_core import Timestamp
from cdc_core.errors import FencedError
from cdc_core.store.progress import DeadLetter, PendingRecord, Progress, ProgressStore
from cdc_core.store.values import moment_text


def assigned(store: ProgressStore, name: str, epoch: int, mark: Timestamp) -> list[PendingRecord]:
    return store.marks.prepare(name, epoch, mark, records=True)[0]


def test_what_was_delivered_keeps_its_first_mark_until_it_is_recorded(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    first, second = Timestamp(10), Timestamp(20)
    a, b, c = ({"path": name} for name in "abc")
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, Progress(token={}), delivered=[a, b])
    one = PendingRecord(mark=first, previous=Timestamp(), delivered=(a, b))
    assert assigned(store, "orders", epoch, first) == [one]
    epoch = store.changefeeds.begin_attempt("orders")  # the run before died here
    store.progress.save("orders", epoch, Progress(token={}), delivered=[c])
    two = PendingRecord(mark=second, previous=first, delivered=(c,))
    assert assigned(store, "orders", epoch, second) == [one, two]
    store.marks.save_emitted("orders", epoch, second, recorded=True)
    assert assigned(store, "orders", epoch, second) == []


def test_what_comes_after_a_mark_waits_for_a_later_one(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    assert assigned(store, "orders", epoch, Timestamp(10)) == [
        PendingRecord(mark=Timestamp(10), previous=Timestamp(), delivered=())
    ]
    store.marks.save_emitted("orders", epoch, Timestamp(10), recorded=True)
    store.progress.save("orders", epoch, Progress(token={}), delivered=[{"path": "a"}])
    assert assigned(store, "orders", epoch, Timestamp(10)) == []
    assert assigned(store, "orders", epoch, Timestamp(20)) == [
        PendingRecord(mark=Timestamp(20), previous=Timestamp(10), delivered=({"path": "a"},))
    ]


def test_the_first_mark_after_something_went_unrecorded_says_so(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.marks.save_emitted("orders", epoch, Timestamp(10), recorded=True)
    store.progress.save("orders", epoch, Progress(token={}), delivered=None)
    store.progress.save("orders", epoch, Progress(token={}), delivered=[{"path": "b"}])
    (waiting,) = assigned(store, "orders", epoch, Timestamp(20))
    assert waiting == PendingRecord(mark=Timestamp(20), previous=None, delivered=({"path": "b"},))
    store.marks.save_emitted("orders", epoch, Timestamp(20), recorded=True)
    (waiting,) = assigned(store, "orders", epoch, Timestamp(30))
    assert waiting.previous == Timestamp(20)


def test_a_gap_does_not_reach_back_to_marks_that_were_given_before_it(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.marks.save_emitted("orders", epoch, Timestamp(10), recorded=True)
    store.progress.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=[{"path": "a"}])
    (first,) = assigned(store, "orders", epoch, Timestamp(20))  # recorded at the sink; then the run died
    store.progress.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=None)
    store.progress.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=[{"path": "b"}])
    again, second = assigned(store, "orders", epoch, Timestamp(30))
    assert again == first == PendingRecord(mark=Timestamp(20), previous=Timestamp(10), delivered=({"path": "a"},))
    assert second == PendingRecord(mark=Timestamp(30), previous=None, delivered=({"path": "b"},))
    store.progress.save(
        "orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=None
    )  # died there once more
    store.progress.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=[{"path": "c"}])
    assert [each.previous for each in assigned(store, "orders", epoch, Timestamp(40))] == [Timestamp(10), None, None]


ELSEWHERE = DEFINITION | {"sink": "kafka://broker:9092"}


def test_the_first_mark_at_another_sink_says_that_rows_are_missing(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, progress(), delivered=[{"path": "a"}])
    store.marks.save_emitted("orders", epoch, Timestamp(10), recorded=True)
    store.progress.save("orders", epoch, progress(), delivered=[{"path": "b"}])  # and the run died before its mark
    store.changefeeds.register("orders", ELSEWHERE)
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, progress(), delivered=[{"path": "c"}])
    assert assigned(store, "orders", epoch, Timestamp(20)) == [
        PendingRecord(mark=Timestamp(20), previous=None, delivered=({"path": "c"},))
    ]
    store.marks.save_emitted("orders", epoch, Timestamp(20), recorded=True)
    (waiting,) = assigned(store, "orders", epoch, Timestamp(30))
    assert waiting.previous == Timestamp(20)


@pytest.mark.parametrize("sink", ["file:///data/out/", "file://someone@/data/out?file_size=1MB"])
def test_the_same_sink_with_other_parameters_loses_nothing(store: ProgressStore, sink: str) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress(), delivered=[{"path": "a"}])
    store.changefeeds.register("orders", DEFINITION | {"sink": sink})
    (waiting,) = assigned(store, "orders", store.changefeeds.begin_attempt("orders"), Timestamp(20))
    assert waiting == PendingRecord(mark=Timestamp(20), previous=Timestamp(), delivered=({"path": "a"},))


def test_a_sink_that_changed_before_the_first_step_misses_nothing(store: ProgressStore) -> None:
    store.changefeeds.register("orders", ELSEWHERE)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), Progress(token={}))
    store.changefeeds.register("orders", DEFINITION)
    (waiting,) = assigned(store, "orders", store.changefeeds.begin_attempt("orders"), Timestamp(20))
    assert waiting.previous == Timestamp()


def test_dead_letters_wait_until_they_are_sent_again(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    letters = [
        DeadLetter(table="shop.public.orders", key=f"[{key}]", updated=Timestamp(key), stage="encode", error="no")
        for key in (7, 8)
    ]
    store.progress.save("orders", epoch, Progress(token={}), dead_letters=letters)
    seven, eight = store.dead_letters.of("orders")
    assert store.dead_letters.of("orders", limit=1) == [seven]
    assert store.dead_letters.of("orders", after=seven.number, limit=9) == [eight]
    assert store.dead_letters.waiting("orders") == store.dead_letters.waiting() == {"orders": 2}
    assert store.dead_letters.waiting("others") == {}
    assert (seven.key, seven.updated, seven.stage, eight.key) == ("[7]", Timestamp(7), "encode", "[8]")
    assert seven.refused_at is not None
    assert store.progress.save("orders", epoch, Progress(token={}), refused_since=seven.refused_at) == 2
    store.dead_letters.mark_replayed("orders", epoch, [seven.number])
    assert [letter.key for letter in store.dead_letters.of("orders")] == ["[8]"]
    assert store.progress.save("orders", epoch, Progress(token={}), refused_since=seven.refused_at) == 2


def test_each_blocked_key_is_told_once_until_all_its_rows_are_sent_again(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    letters = [
        DeadLetter(table="shop.public.orders", key=key, updated=Timestamp(n), stage=stage, error="no")
        for n, (key, stage) in enumerate([("[7]", "sink"), ("[7]", "blocked"), ("[8]", "encode")])
    ]
    store.progress.save("orders", epoch, Progress(token={}), dead_letters=letters)
    assert sorted(store.dead_letters.blocked_keys("orders")) == [
        ("shop.public.orders", "[7]"),
        ("shop.public.orders", "[8]"),
    ]
    assert store.dead_letters.blocked_keys("invoices") == []
    first, second, _ = store.dead_letters.of("orders")
    store.dead_letters.mark_replayed("orders", epoch, [first.number])
    assert len(store.dead_letters.blocked_keys("orders")) == 2
    store.dead_letters.mark_replayed("orders", epoch, [second.number])
    assert store.dead_letters.blocked_keys("orders") == [("shop.public.orders", "[8]")]


def test_what_a_replay_delivers_is_recorded_with_a_later_mark(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.marks.save_emitted("orders", epoch, Timestamp(10), recorded=True)
    store.dead_letters.mark_replayed("orders", epoch, [], delivered=[{"path": "again"}])
    assert assigned(store, "orders", epoch, Timestamp(10)) == []
    (waiting,) = assigned(store, "orders", epoch, Timestamp(20))
    assert waiting == PendingRecord(mark=Timestamp(20), previous=Timestamp(10), delivered=({"path": "again"},))


def test_a_replay_that_goes_unrecorded_says_so(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, Progress(token={}))
    store.marks.save_emitted("orders", epoch, Timestamp(10), recorded=True)
    store.dead_letters.mark_replayed("orders", epoch, [], delivered=None)
    (waiting,) = assigned(store, "orders", epoch, Timestamp(20))
    assert waiting.previous is None


def test_rows_that_were_sent_again_are_forgotten_after_a_day_and_their_numbers_never_come_back(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_aside(*keys: str, at: datetime) -> None:
        letters = [DeadLetter(table="t", key=key, updated=Timestamp(1), stage="encode", error="") for key in keys]
        with monkeypatch.context() as patch:
            patch.setattr("cdc_core.store.saved_progress.now_text", lambda: moment_text(at))
            store.progress.save("orders", epoch, Progress(token={}), dead_letters=letters)

    store.changefeeds.register("orders", DEFINITION)
    epoch, now = store.changefeeds.begin_attempt("orders"), datetime.now(UTC)
    put_aside("[1]", at=now)
    put_aside("[2]", "[3]", "[4]", at=now - timedelta(days=2))
    numbers = {letter.key: letter.number for letter in store.dead_letters.of("orders")}
    store.dead_letters.mark_replayed("orders", epoch, [numbers["[1]"], numbers["[2]"], numbers["[4]"]])
    assert [letter.key for letter in store.dead_letters.of("orders")] == ["[3]"]
    refused = store.progress.save("orders", epoch, Progress(token={}), refused_since=now - timedelta(days=9))
    assert refused == 3  # the last one keeps its number taken
    put_aside("[5]", at=now)
    assert max(letter.number for letter in store.dead_letters.of("orders")) > max(numbers.values())
    store.dead_letters.mark_replayed("orders", epoch, [])
    assert store.progress.save("orders", epoch, Progress(token={}), refused_since=now - timedelta(days=9)) == 3


def test_a_fenced_replay_changes_nothing(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(1), stage="sink", error="no")
    store.progress.save("orders", epoch, Progress(token={}), dead_letters=[letter])
    (waiting,) = store.dead_letters.of("orders")
    newer = store.changefeeds.begin_attempt("orders")
    with pytest.raises(FencedError):
        store.dead_letters.mark_replayed("orders", epoch, [waiting.number], delivered=[{"path": "again"}])
    assert store.dead_letters.of("orders") == [waiting]
    assert [each.delivered for each in assigned(store, "orders", newer, Timestamp(1))] == [()]


def test_a_fenced_run_leaves_no_dead_letter_and_no_delivery(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    newer = store.changefeeds.begin_attempt("orders")
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(1), stage="sink", error="no")
    with pytest.raises(FencedError):
        store.progress.save("orders", epoch, Progress(token={}), delivered=[{"path": "a"}], dead_letters=[letter])
    assert store.dead_letters.of("orders") == []
    (waiting,) = assigned(store, "orders", newer, Timestamp(9))
    assert waiting.delivered == ()
