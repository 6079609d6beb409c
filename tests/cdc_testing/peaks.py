"""The memory of the processes of a run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg
from benchmarks.processes import watched
from cdc_testing.files import last_resolved
from cdc_testing.postgres import clock
from cdc_testing.runs import Feed

MB = 1_000_000


def peaks(feed: Feed, work: Callable[[], None] | None = None) -> dict[str, int]:
    """Run to the end, or while *work* is done, and return the largest process of each role, in bytes."""
    feed.start(*(["--once"] if work is None else []))
    assert feed.process is not None
    with watched(feed.process.pid) as usage:
        if work is not None:
            work()
            feed.process.send_signal(signal.SIGTERM)
        assert feed.wait() == 0, feed.log_tail()
    found: dict[str, int] = usage.peak_by_role()
    sys.stderr.write(f"{ {role: peak // MB for role, peak in found.items()} }\n")
    return found


def peaks_of_scan_and_log(feed: Feed, database: psycopg.Connection[Any], uri: str, change: str) -> dict[str, int]:
    """Return the largest process of each role while a run scans the *database* and then delivers *change*."""

    def work() -> None:
        feed.until("the scan", lambda: bool(last_resolved(feed.files)))
        database.execute(change)
        now = clock(uri)
        feed.until("the change", lambda: last_resolved(feed.files) >= now)

    return peaks(feed, work)
