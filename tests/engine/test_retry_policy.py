"""When a run gives up: what counts, and what is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.clock import Clock
from cdc_testing.engine import counter_feed

from cdc_core.engine.query_host import QueryHostError
from cdc_core.engine.retry_policy import RetryPolicy
from cdc_core.errors import RestartError, RetryableError, RetryableRangefeedError, RetryableSinkError, TerminalError
from cdc_core.options import Duration


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy(tmp_path: Path, clock: Clock) -> RetryPolicy:
    waits = {"retry_backoff": Duration(1.0), "max_retry_backoff": Duration(30.0)}
    feed = counter_feed(tmp_path, options={"max_attempts": 20, "give_up_after": Duration(600.0), **waits})
    return RetryPolicy(feed, clock=clock)


def fail(policy: RetryPolicy, clock: Clock, error: Exception, *, times: int, every_s: float) -> str:
    """Return what the last of *times* failures is judged to be, "" for none. No earlier one may end the retries."""
    for left in reversed(range(times)):
        found = policy.give_up_reason(error, str(error))
        if left == 0 or found is not None:
            assert left == 0, found
            return "" if found is None else str(found)
        clock.now += every_s
    raise AssertionError("no failure")


def test_the_twentieth_failure_for_the_same_reason_is_the_last(policy: RetryPolicy, clock: Clock) -> None:
    error = RetryableError("the step broke", outage=False)
    assert fail(policy, clock, error, times=20, every_s=60.0) == (
        "the same step failed 20 times in 19 min 0 s for the same reason: the step broke"
    )


def test_ten_minutes_of_failures_are_waited_for_in_any_case(policy: RetryPolicy, clock: Clock) -> None:
    error = RetryableError("the step broke", outage=False)
    assert fail(policy, clock, error, times=600, every_s=1.0) == ""
    clock.now += 1.0
    assert "failed 601 times in 10 min 0 s" in str(policy.give_up_reason(error, str(error)))


@pytest.mark.parametrize(
    "error",
    [
        RetryableRangefeedError("no route to host"),
        RetryableSinkError("response 503"),
        RetryableError("the store is busy"),
        ConnectionResetError("reset by peer"),
        TimeoutError("timed out"),
    ],
)
def test_an_outage_is_waited_for_however_long_it_lasts(policy: RetryPolicy, clock: Clock, error: Exception) -> None:
    assert fail(policy, clock, error, times=1000, every_s=30.0) == ""


@pytest.mark.parametrize("error", [ValueError("nobody expected this"), QueryHostError("a job failed")])
def test_an_error_that_does_not_say_that_it_is_an_outage_counts(
    policy: RetryPolicy, clock: Clock, error: Exception
) -> None:
    assert str(error) in fail(policy, clock, error, times=20, every_s=60.0)


def test_a_jvm_that_ends_counts_whatever_the_error_was(policy: RetryPolicy, clock: Clock) -> None:
    for number in range(19):
        assert policy.give_up_reason(RetryableSinkError(f"{number}"), "lost", host_ended="raise the memory") is None
        clock.now += 60.0
    assert str(policy.give_up_reason(OSError("refused"), "refused", host_ended="raise the memory")) == (
        "the same step failed 20 times in 19 min 0 s because Spark's JVM ended; raise the memory"
    )


def test_numbers_and_identities_make_no_other_reason(policy: RetryPolicy, clock: Clock) -> None:
    texts = [
        "query [id = 6b1f53f2-0e6a-4a52-9f0b-abcdefabcdef] failed at <X object at 0x7f3a> in batch 17",
        "query [id = aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee] failed at <X object at 0x7f3b> in batch 18",
    ]
    for number in range(19):
        assert policy.give_up_reason(QueryHostError("x"), texts[number % 2]) is None
        clock.now += 60.0
    assert policy.give_up_reason(QueryHostError("x"), texts[1]) is not None


def test_failures_for_other_reasons_and_outages_in_between_change_nothing(policy: RetryPolicy, clock: Clock) -> None:
    for _ in range(19):
        for error in (ValueError("one"), RetryableSinkError("busy"), KeyError("two")):
            assert policy.give_up_reason(error, str(error)) is None
            clock.now += 60.0
    assert isinstance(policy.give_up_reason(ValueError("one"), "one"), TerminalError)


def test_a_saved_step_begins_the_count_anew(policy: RetryPolicy, clock: Clock) -> None:
    error = ValueError("again")
    assert fail(policy, clock, error, times=19, every_s=60.0) == ""
    policy.reset()
    assert fail(policy, clock, error, times=19, every_s=60.0) == ""
    assert "failed 20 times" in fail(policy, clock, error, times=1, every_s=0.0)


def test_waits_double_up_to_the_longest_and_begin_again_after_a_saved_step(policy: RetryPolicy) -> None:
    error = RetryableSinkError("busy")
    assert [policy.next_wait_s(error) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.next_wait_s(RetryableSinkError("busy", retry_after_s=90.0)) == 90
    policy.reset()
    assert policy.next_wait_s(error) == 1


def test_another_attempt_that_is_needed_begins_at_once_but_only_after_a_saved_step(policy: RetryPolicy) -> None:
    error = RestartError("tables join")
    assert policy.next_wait_s(error) == 1
    policy.reset()
    assert [policy.next_wait_s(error) for _ in range(2)] == [0, 1]
