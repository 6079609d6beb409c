from __future__ import annotations

from cdc_core.jobs.back_off import BackOff


def test_a_job_that_fails_again_and_again_waits_longer_each_time_and_a_minute_at_most() -> None:
    now = [100.0]
    back_off = BackOff(lambda: now[0])
    assert back_off.is_over("a")
    waits = []
    for _ in range(8):
        back_off.ended("a", "stopped", "its source is gone")
        begun = now[0]
        while not back_off.is_over("a"):
            now[0] += 1.0
        waits.append(now[0] - begun)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert back_off.is_over("b")
    back_off.ended("a", "stopped", "its source is gone")
    back_off.ended("a", "stopped", None)  # as it was told to
    assert back_off.is_over("a")
