from __future__ import annotations

from cdc_testing.thread_host import KeptThreads, ThreadHost

from cdc_core.spark import host, runner


def test_runs_are_on_threads_inside_the_block_alone() -> None:
    for _ in range(2):
        with KeptThreads().lent():
            assert isinstance(runner.SparkHost(), ThreadHost)
        assert runner.SparkHost is host.SparkHost
