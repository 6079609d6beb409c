"""The engine alone: packed rows through Spark, with one slice a step (as the log has) and with one for each core."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.engine_alone import BATCH_ROWS
from benchmarks.feed import Command
from benchmarks.report import Figure

_STEPS = 8


def run(bench: Bench) -> Iterator[Figure]:
    for slices in sorted({1, os.cpu_count() or 1}):
        batches = max(1, 8 * bench.sizes.part_rows // _STEPS // slices // BATCH_ROWS)
        with bench.scratch("engine") as scratch:
            state = scratch / "state"
            arguments = [str(state), str(_STEPS), str(slices), str(batches)]
            command = Command(
                [sys.executable, "-m", "benchmarks.engine_alone", *arguments],
                state_dir=state,
                log_path=scratch / "engine.log",
            )
            ours = command.run()
        assert ours.rows == _STEPS * slices * batches * BATCH_ROWS
        yield Figure(
            name=f"part: engine alone, {slices} slice{'s' if slices > 1 else ''} a step",
            value=ours.rate,
            unit="rows/s",
            peak_rss=ours.peak_rss,
            details=ours.details(),
        )
