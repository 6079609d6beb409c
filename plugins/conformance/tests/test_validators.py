"""What each validator finds: without an oracle, with a known start, after killed attempts."""

from __future__ import annotations

import math

import pytest
from cdc_conformance.validators import (
    All,
    BeforeAfterValidator,
    CompletenessValidator,
    CountValidator,
    CutValidator,
    FingerprintValidator,
    KeyInValueValidator,
    MvccValidator,
    OrderValidator,
    PrefixValidator,
    ResolvedValidator,
    SeenRow,
    State,
    TopicValidator,
    VersionValidator,
    retried,
)
from cdc_conformance.validators.events import key_of
from cdc_testing.seen import feed, mark, row

from cdc_core import Timestamp

PLACES = [("t", 0), ("t", 1)]


def test_a_new_row_at_a_resolved_mark_is_found() -> None:
    events = [row("a", 1), mark(5), row("b", 5)]
    assert feed(OrderValidator(), *events) == [
        'topic t key ["b"]: saw new row timestamp 5.0000000000 after 5.0000000000 was resolved'
    ]
    assert feed(OrderValidator(strict=False), *events) == []


def test_a_new_row_at_a_mark_of_its_topic_is_found() -> None:
    assert feed(OrderValidator(), mark(5, topic="t"), row("a", 4), row("a", 4, topic="u")) == [
        'topic t key ["a"]: saw new row timestamp 4.0000000000 after 5.0000000000 was resolved'
    ]


def test_a_smaller_mark_changes_nothing() -> None:
    assert feed(OrderValidator(), mark(5, at=0), mark(3, at=0), row("a", 4, at=0)) == [
        'topic t partition 0 key ["a"]: saw new row timestamp 4.0000000000 after 5.0000000000 was resolved'
    ]


def test_a_key_in_two_partitions_is_found_even_when_it_is_a_repeat() -> None:
    events = [row("a", 1, at=0), row("a", 1, at=1), row("a", 2, at=1), row("a", 3, at=0)]
    assert feed(OrderValidator(), *events) == ['topic t key ["a"]: received on two partitions: 0 and 1'] * 2


def test_moving_keys_are_in_order_in_each_partition() -> None:
    events = [row("a", 1, at=0), row("a", 3, at=0), row("a", 4, at=1), mark(4, at=1), row("a", 2, at=1)]
    assert feed(OrderValidator(moving_keys=True), *events) == [
        'topic t partition 1 key ["a"]: saw new row timestamp 2.0000000000 after 4.0000000000 was seen',
        'topic t partition 1 key ["a"]: saw new row timestamp 2.0000000000 after 4.0000000000 was resolved',
    ]


def test_versions_are_counted_across_partitions() -> None:
    rows = [row("a", 1, {"v": 1}, at=0), row("a", 3, {"v": 3}, at=1)]
    assert feed(VersionValidator("t", "v"), *rows) == ['topic t key ["a"]: versions [2] never arrived']


def test_rows_repeats_and_marks_are_counted() -> None:
    count = CountValidator()
    feed(count, row("a", 1), row("a", 1), row("b", 2), mark(1), mark(1), row("c", 3), mark(2), row("a", 1), mark(2))
    assert (count.rows, count.repeats, count.marks) == (5, 2, 4)
    assert (count.resolved_rows, count.marks_with_rows) == (4, 3)
    assert count.failures() == []


def test_a_mark_covers_the_rows_of_its_own_partition() -> None:
    count = CountValidator()
    feed(count, row("a", 1, at=0), row("b", 1, at=1), mark(1, at=0))
    assert (count.resolved_rows, count.marks_with_rows) == (1, 1)


def test_too_few_events_are_a_failure() -> None:
    assert feed(CountValidator(least_rows=2, least_marks=1), row("a", 1)) == [
        "1 rows arrived, expected at least 2",
        "0 resolved marks arrived, expected at least 1",
    ]


def test_the_failures_of_several_validators_are_combined() -> None:
    both = All([CountValidator(least_marks=2), OrderValidator()])
    assert feed(both, row("a", 1), mark(1), row("b", 1)) == [
        "1 resolved marks arrived, expected at least 2",
        'topic t key ["b"]: saw new row timestamp 1.0000000000 after 1.0000000000 was resolved',
    ]


def total_is_ten(state: State) -> str | None:
    total = sum(row["v"] for row in state.get("t", {}).values())
    return None if total == 10 else f"total is {total}"


def test_a_repeat_of_an_older_version_changes_nothing() -> None:
    events = [row("a", 1, {"v": 4}), row("a", 2, {"v": 10}), mark(2), row("a", 1, {"v": 4}), mark(3)]
    assert feed(CutValidator(total_is_ten), *events) == []


def test_the_cut_is_at_the_least_mark_of_all_endpoints() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    events = [
        row("a", 1, {"v": 10}, at=0),
        mark(1, at=0),
        row("a", 2, {"v": 7}, at=0),
        mark(2, at=0),  # the other half of the transaction is in a partition that has no mark yet
        mark(1, at=1),
        row("b", 2, {"v": 3}, at=1),
        mark(2, at=1),
    ]
    assert feed(cut, *events) == []
    cut.note_row(row("a", 2, {"v": 7}, at=0))
    assert (cut.cuts, cut.waiting) == (2, 0), "a repeat does not wait for a cut"
    assert cut.state == {"t": {("a",): {"v": 7}, ("b",): {"v": 3}}}


def test_there_is_no_cut_while_an_endpoint_has_no_mark() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    assert feed(cut, row("a", 1, {"v": 3}, at=0), mark(1, at=0), mark(2, at=0)) == []
    assert (cut.cuts, cut.waiting) == (0, 1)


def test_a_smaller_mark_makes_no_cut() -> None:
    cut = CutValidator(total_is_ten, endpoints=PLACES)
    marks = [mark(resolved, at=at) for resolved in (5, 3) for at in (0, 1)]
    assert feed(cut, row("a", 1, {"v": 10}, at=0), *marks, row("b", 6, {"v": 1}, at=0)) == []
    assert (cut.cuts, cut.waiting) == (1, 1)


def test_an_unknown_endpoint_is_a_failure() -> None:
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), mark(1, at=2), row("a", 1, {"v": 3}, at=2)) == [
        "topic t partition 2: not among the endpoints",
        "topic t partition 2: not among the endpoints",
    ]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), mark(1)) == ["all topics: not among the endpoints"]


def test_with_every_timestamp_a_transaction_with_two_timestamps_is_found() -> None:
    # rows of a scan may have several ages
    scan = [row("a", 1, {"v": 4}, at=0), row("c", 2, {"v": 6}, at=0), mark(2, at=0), mark(2, at=1)]
    events = [*scan, row("b", 4, {"v": 3}, at=1), row("a", 3, {"v": 1}, at=0), mark(4, at=0), mark(4, at=1)]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), *events) == []
    strict = CutValidator(total_is_ten, endpoints=PLACES, every_timestamp=True)
    assert feed(strict, *events) == ["at 3.0000000000: total is 7"]


def test_rows_of_several_endpoints_are_applied_in_timestamp_order() -> None:
    events = [row("a", 5, {"v": 10}, at=1), row("a", 4, {"v": 1}, at=0), mark(5, at=0), mark(5, at=1)]
    assert feed(CutValidator(total_is_ten, endpoints=PLACES), *events) == []


def test_without_diff_there_is_no_before() -> None:
    assert feed(BeforeAfterValidator(diff=False), row("a", 1, {"v": 1}), row("a", 2, {"v": 2}, before={"v": 1})) == [
        'topic t key ["a"] updated 2.0000000000: before is {"v": 1}, expected no row'
    ]
    asked = BeforeAfterValidator(lambda _topic, _key, when: {"v": when.wall}, diff=False)
    assert feed(asked, row("a", 1, {"v": 1}), row("a", 2, {"v": 2}, before={"v": 1})) == [
        'topic t key ["a"] updated 2.0000000000: before is {"v": 1}, expected no row'
    ]


def test_before_may_be_missing_only_before_the_first_mark() -> None:
    known = BeforeAfterValidator(lambda _topic, _key, _when: {"v": 1})
    assert feed(known, row("a", 5, {"v": 1}), mark(5), row("b", 6, {"v": 1})) == [
        'topic t key ["b"] updated 6.0000000000: before is no row, expected {"v": 1}'
    ]


def test_the_scan_may_repeat_a_row_of_the_log() -> None:
    log = [row("a", 1, {"v": 1}), row("a", 2, {"v": 2}, before={"v": 1})]
    assert feed(BeforeAfterValidator(), *log, row("a", 3, {"v": 2}), row("a", 3, {"v": 2})) == []
    assert feed(BeforeAfterValidator(), *log, row("a", 3, {"v": 3})) == [
        'topic t key ["a"] updated 3.0000000000: before is no row, expected {"v": 2}'
    ]


@pytest.mark.parametrize(
    ("first", "again", "found"),
    [
        (row("a", 1, {"v": 1}, before={"v": 0}), row("a", 1, {"v": 1}), None),
        (row("a", 1, {"v": 1}), row("a", 1, {"v": 1}, before={"v": 0}), None),
        (row("a", 1, {"v": 1}, before={"v": 0}), row("a", 1, {"v": 1}, before={"v": 9}), '{"v": 9}, expected {"v": 0}'),
        (row("a", 1, before={"v": 0}), row("a", 1), 'no row, expected {"v": 0}'),
    ],
    ids=["scanned again", "logged again", "other before", "delete"],
)
def test_a_repeat_must_equal_the_first_arrival_unless_it_is_scanned(
    first: SeenRow, again: SeenRow, found: str | None
) -> None:
    failures = [] if found is None else [f'topic t key ["a"] updated 1.0000000000: arrived again with before {found}']
    assert feed(BeforeAfterValidator(), first, again) == failures
    assert feed(BeforeAfterValidator(), first, mark(1), first) == []
    assert len(feed(BeforeAfterValidator(), first, mark(1), again)) == 1


def test_nan_equals_nan_and_a_missing_column_equals_null() -> None:
    first = row("a", 1, {"v": float("nan"), "new": None})
    assert feed(BeforeAfterValidator(), first, row("a", 2, {"v": 1}, before={"v": math.nan})) == []
    assert key_of((float("nan"),)) == key_of((float("nan"),))
    assert {key_of((float("nan"),)), key_of((float("nan"),))} == {(math.nan,)}


def test_a_row_of_a_backfill_lacks_before_but_repeats_the_row() -> None:
    first, again, other = row("a", 1, {"v": 1}), row("a", 3, {"v": 1}), row("a", 3, {"v": 2})
    for oracle in (None, lambda _topic, _key, _when: {"v": 1}):
        assert feed(BeforeAfterValidator(oracle, backfills=True), first, mark(2), again) == []
        assert len(feed(BeforeAfterValidator(oracle), first, mark(2), again)) == 1
        assert feed(BeforeAfterValidator(oracle, backfills=True), first, mark(2), other) != []


def test_an_oracle_is_retried_while_its_database_is_down() -> None:
    answers: list[object] = [ConnectionError("down"), ConnectionError("down"), {"v": 1}, None]

    def as_of(topic: str, key: object, when: Timestamp) -> dict[str, int] | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    patient = retried(as_of, on=(ConnectionError,), pause_s=0)
    assert feed(BeforeAfterValidator(patient), row("a", 1, {"v": 1})) == []
    assert answers == [None], "the oracle is not called for `before` if the row may be scanned"


def test_an_error_of_an_oracle_is_raised() -> None:
    def as_of(topic: str, key: object, when: Timestamp) -> None:
        raise ConnectionError("down")

    for validator in (
        BeforeAfterValidator(retried(as_of, on=(ConnectionError,), limit_s=0, pause_s=0)),
        BeforeAfterValidator(retried(as_of, on=(TimeoutError,))),
    ):
        with pytest.raises(ConnectionError):
            feed(validator, row("a", 1, {"v": 1}))
        assert validator.failures() == []


def test_a_fingerprint_finds_an_update_lost_between_two_timestamps() -> None:
    versions = {1: 10, 2: 20, 3: 30}

    def state_at(when: Timestamp) -> State:
        return {"t": {("a",): {"v": versions[min(when.wall, 3)]}}}

    events = [row("a", 1, {"v": 10}), mark(1), row("a", 3, {"v": 30}), mark(3)]
    lost = 'before 3.0000000000: topic t key ["a"]: is {"v": 10}, expected {"v": 20}'
    assert feed(FingerprintValidator(state_at), *events) == [lost]
    # without a mark between them the first cut is all that can be looked at, unless the start is known
    unmarked = [events[0], *events[2:]]
    assert feed(FingerprintValidator(state_at), *unmarked) == []
    known = FingerprintValidator(state_at, start={"t": {("a",): {"v": 10}}})
    assert feed(known, *unmarked[1:]) == [lost]
    assert known.looks == 3


def test_a_row_that_differs_is_reported_until_it_differs_in_another_way() -> None:
    validator = FingerprintValidator(lambda when: {"t": {("a",): {"v": when.wall // 10}}})
    assert feed(validator, row("a", 1, {"v": 9}), mark(2), mark(3), mark(10), mark(11)) == [
        'at resolved 2.0000000000: topic t key ["a"]: is {"v": 9}, expected {"v": 0}',
        'at resolved 10.0000000000: topic t key ["a"]: is {"v": 9}, expected {"v": 1}',
    ]


A, B = [("t", ("a",), {"v": 1}), ("t", ("b",), {"v": 1})], [("t", ("a",), {"v": 2}), ("t", ("b",), None)]


def test_without_every_timestamp_a_transaction_may_have_two_timestamps() -> None:
    events = [row("a", 1, {"v": 1}), row("b", 1, {"v": 1}), mark(1), row("a", 2, {"v": 2}), row("b", 3), mark(3)]
    assert feed(PrefixValidator([A, B], every_timestamp=False, whole=True), *events) == []
    assert feed(PrefixValidator([A, B]), *events) == [
        "at 2.0000000000: the tables match no commit; after 2 of 2 commits"
        ' topic t key ["b"] was no row, but is {"v": 1}'
    ]


def test_with_whole_a_last_cut_that_lacks_commits_is_found() -> None:
    events = [row("a", 1, {"v": 1}), row("b", 1, {"v": 1}), mark(1)]
    assert feed(PrefixValidator([A, B]), *events) == []
    assert feed(PrefixValidator([A, B], whole=True), *events) == [
        "the last cut, at 1.0000000000, lacks commits; after 2 of 2 commits"
        ' topic t key ["a"] was {"v": 2}, but is {"v": 1}'
    ]


def test_without_each_only_the_greatest_mark_must_be_everywhere() -> None:
    marks = [mark(1, at=0), mark(2, at=0), mark(2, at=1)]
    assert feed(ResolvedValidator(PLACES, each=False), *marks) == []
    assert feed(ResolvedValidator(PLACES), *marks) == [
        "topic t partition 1: resolved 1.0000000000 never arrived, though it did elsewhere"
    ]
    assert feed(ResolvedValidator(PLACES, each=False), *marks, mark(3, at=0)) == [
        "topic t partition 1: resolved only up to 2.0000000000, another endpoint up to 3.0000000000"
    ]
    assert feed(ResolvedValidator(), mark(3), mark(3)) == []


def test_without_a_limit_rows_may_have_any_age() -> None:
    old = row("a", 10**18, {}, mvcc=Timestamp(1))
    assert feed(MvccValidator(within_s=None), old) == []
    assert feed(MvccValidator(within_s=5), old) == [
        f'topic t key ["a"] updated {Timestamp(10**18)}: mvcc timestamp {Timestamp(1)} is more than 5 s before it'
    ]


def test_the_key_must_match_the_key_columns() -> None:
    seen = SeenRow(topic="t", key=(1,), after={"id": 2}, updated=Timestamp(3), key_in_value=(1,))
    assert feed(KeyInValueValidator({"t": ["id"]}), seen) == [
        "topic t key [1] updated 3.0000000000: its columns id are [2]"
    ]


def test_unknown_topics_are_found() -> None:
    events = [row("a", 1), row("a", 1, topic="u"), mark(1, topic="u"), mark(1, at=0), mark(1)]
    assert feed(TopicValidator(["t"]), *events) == [
        'topic u key ["a"] updated 1.0000000000: the topics are t',
        "topic u resolved 1.0000000000: the topics are t",
    ]


def test_the_scan_brings_only_the_last_version_of_earlier_commits() -> None:
    commits = [[("t", ("a",), {"n": number})] for number in (1, 2, 3)]
    for arrived in ([2, 3], [3], [1, 2, 3]):
        rows = [row("a", number, {"n": number}) for number in arrived]
        assert feed(CompletenessValidator(commits, started=2), *rows) == []
    assert feed(CompletenessValidator(commits, started=2), row("a", 2, {"n": 2})) == [
        'topic t key ["a"]: version {"n": 3}, 3 of 3, never arrived'
    ]
    assert feed(CompletenessValidator(commits, started=1), row("a", 3, {"n": 3})) == [
        'topic t key ["a"]: version {"n": 2}, 2 of 3, never arrived'
    ]
    assert feed(CompletenessValidator(commits[:2], started=2)) == [
        'topic t key ["a"]: version {"n": 2}, 2 of 2, never arrived'
    ]


def test_versions_whose_timestamps_are_not_in_commit_order_are_found() -> None:
    commits = [[("t", ("a",), {"n": number})] for number in (1, 2, 1, 3)]
    rows = [row("a", number, {"n": n}) for number, n in enumerate((1, 2, 3))]
    assert feed(CompletenessValidator(commits, column="n"), *rows) == [
        'topic t key ["a"]: versions 1, 2, 3 arrived, expected 1, 2, 1, 3'
    ]
    rows = [row("a", number, {"n": n}) for number, n in enumerate((2, 1, 1, 3))]
    assert feed(CompletenessValidator([commits[0], commits[1], commits[3]], column="n"), *rows) == [
        'topic t key ["a"]: versions 2, 1, 3 arrived, expected 1, 2, 3'
    ]


def test_a_version_equals_one_with_an_additional_null() -> None:
    assert feed(CompletenessValidator([[("t", ("a",), {"n": 1})]]), row("a", 1, {"n": 1, "new": None})) == []


def test_the_last_version_is_compared_completely() -> None:
    commits = [[("t", ("a",), {"n": 1, "v": 1})]]
    assert feed(CompletenessValidator(commits, column="n"), row("a", 1, {"n": 1, "v": 2})) == [
        'topic t key ["a"]: is {"n": 1, "v": 2} at the end, expected {"n": 1, "v": 1}'
    ]
