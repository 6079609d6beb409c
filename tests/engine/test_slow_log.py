"""With log_slow: one line for each task that waits for long, when it goes on, and for each slice that took long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from cdc_testing.clock import Clock
from cdc_testing.engine import counter_feed

from cdc_core import Flushed, SliceInfo, Span, SpanMark, Timestamp
from cdc_core.engine.attempt_channel import Activity, AttemptChannel
from cdc_core.engine.driver_log import AttemptLog, SlowCalls, slow_slices
from cdc_core.engine.slices import PlannedSlice, SliceReport
from cdc_core.telemetry.stages import SINK, SOURCE, STAGES, Repeat

OWNERS: Mapping[str, str] = {SINK: "sink 'webhook'", SOURCE: "source 'postgres'"}
BEGIN = "changefeed 't': slow: slice (process 7)"


def task(for_s: float, *, stage: str = SINK, process: int = 7, reason: str | None = None) -> Activity:
    repeat = None if reason is None else Repeat(reason=reason, next_at=0.0)
    seconds = dict.fromkeys(STAGES, 0.0)
    return Activity(role="slice", stage=stage, for_s=for_s, seconds=seconds, repeat=repeat, process=process)


def slow(limit_s: float | None, clock: Clock) -> SlowCalls:
    return SlowCalls("t", limit_s, owners=OWNERS, masked=lambda text: text.replace("hunter2", "***"), clock=clock)


def test_a_task_that_waits_is_named_at_the_limit_then_at_each_doubling_and_when_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    calls = slow(5.0, clock)
    for second in range(25):
        clock.now = float(second)
        calls.update([task(float(second), reason="response 503 for hunter2"), task(0.1, process=8)])
    clock.now = 25.0
    calls.update([task(0.0, stage=SOURCE), task(0.1, process=8)])
    assert caplog.messages == [
        f"{BEGIN} has been waiting {seconds:.1f} s for sink 'webhook': response 503 for ***" for seconds in (5, 10, 20)
    ] + [f"{BEGIN} resumed after waiting 25.0 s for sink 'webhook'"]


def test_a_task_that_waits_anew_in_the_same_stage_is_another_wait(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    calls = slow(5.0, clock)
    for now, for_s in ((6.0, 6.0), (20.0, 0.5), (26.0, 6.5)):
        clock.now = now
        calls.update([task(for_s)])
    assert [message.removeprefix(f"{BEGIN} ")[:9] for message in caplog.messages] == [
        "has been ",
        "resumed a",
        "has been ",
    ]


def test_a_task_that_is_gone_has_gone_on(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    calls = slow(5.0, clock)
    clock.now = 6.0
    calls.update([task(6.0)])
    calls.update([])
    calls.update([])
    assert caplog.messages[1:] == [f"{BEGIN} resumed after waiting 6.0 s for sink 'webhook'"]


def test_without_the_option_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    slow(None, Clock()).update([task(1000.0)])
    assert caplog.messages == []


def test_a_slice_that_took_long_is_named_with_its_tables_and_where_its_time_went(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def report(index: int, seconds: float) -> SliceReport:
        mark = SpanMark(span=Span("shop.public.orders"), timestamp=Timestamp(5), resolved=True)
        return SliceReport(
            planned=PlannedSlice(
                slice=None, info=SliceInfo(step=12, index=index, lower=Timestamp(1)), slices=2, end={}
            ),
            marks=(mark,),
            rows=1000,
            flushed=Flushed(messages=0, bytes=0, files=0),
            seconds=seconds,
            stages={SOURCE: 2.0, SINK: 40.1},
        )

    feed, channel = counter_feed(tmp_path), AttemptChannel(tmp_path)
    for line in slow_slices([report(0, 1.0), report(1, 45.2)], 5.0):
        channel.warn(line)
    AttemptLog(feed, channel).repeat_warnings()
    assert caplog.messages == [
        f"changefeed '{feed.name}': slow: slice 2 of 2 of step 12 (shop.public.orders) took 45.2 s for 1,000 rows:"
        " source 2.0 s, encode 0.0 s, sink 40.1 s, store 0.0 s"
    ]


def test_no_time_at_all_is_no_limit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'log_slow' must be longer than 0s"):
        counter_feed(tmp_path, options={"log_slow": 0.0})
