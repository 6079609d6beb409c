"""A source that nobody hears is asked on a new connection, and an attempt ends when that fails too."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from cdc_testing.clock import Clock
from cdc_testing.runs import eventually

from cdc_core.engine.source_probe import SourceProbe
from cdc_core.errors import ConfigError, RetryableRangefeedError


def asked(probe: SourceProbe, clock: Clock, *, until_s: float) -> None:
    """Look once a second, and after each question as soon as it is answered."""
    while clock.now < until_s:
        clock.now += 1
        probe.poll(7)
        asking = probe._asking
        if asking is not None:
            asking.join(10)


def failing(error: Exception, clock: Clock, *, after_s: float = 2.0) -> Callable[[], object]:
    def ask() -> object:
        clock.now += after_s
        raise error

    return ask


def test_a_source_that_saves_steps_is_never_asked() -> None:
    clock, asks = Clock(), []
    probe = SourceProbe(lambda: asks.append(clock.now), clock=clock)
    for step in range(1000):
        clock.now += 50
        probe.poll(step)
    assert asks == []


def test_a_long_step_of_a_source_that_answers_goes_on() -> None:
    clock, asks = Clock(), []
    asked(SourceProbe(lambda: asks.append(clock.now), clock=clock), clock, until_s=1000)
    assert 10 < len(asks) < 70


def test_a_source_that_does_not_answer_ends_the_attempt() -> None:
    clock = Clock()
    probe = SourceProbe(failing(RetryableRangefeedError("timeout expired"), clock), clock=clock)
    with pytest.raises(RetryableRangefeedError, match=r"no step has been saved for 1 min 3\d s, .* timeout expired"):
        asked(probe, clock, until_s=1000)


@pytest.mark.parametrize(
    ("error", "after_s"),
    [(ConfigError("the password is wrong"), 2.0), (RetryableRangefeedError("too many clients already"), 0.1)],
)
def test_a_refusal_is_an_answer(error: Exception, after_s: float) -> None:
    clock = Clock()
    asked(SourceProbe(failing(error, clock, after_s=after_s), clock=clock), clock, until_s=1000)


def test_a_question_that_hangs_is_a_failure() -> None:
    clock, over = Clock(), threading.Event()
    probe = SourceProbe(lambda: over.wait(60), clock=clock)
    try:
        probe.poll(7)
        clock.now += 61
        probe.poll(7)
        eventually("the question", lambda: probe._asking)
        clock.now += 61
        with pytest.raises(RetryableRangefeedError, match="no answer"):
            probe.poll(7)
    finally:
        over.set()
