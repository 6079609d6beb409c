"""What metrics cost: a backlog to JSON files while /metrics is scraped each second, beside the same without metrics."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.context import Bench
from benchmarks.feed import FeedRun
from benchmarks.file_feed import FileFeed
from benchmarks.report import Figure, Target
from benchmarks.workload import create_table, update_rows

_KEYS = 100_000
_ROUNDS = 4
_EVERY_S = 1.0
_TARGET = Target(per_peer=0.99)


def run(bench: Bench) -> Iterator[Figure]:
    """Deliver the same backlog again and again, in turn without and with metrics; the medians are compared."""
    changes = bench.sizes.metrics_changes
    without, ours, scrapes = [], [], 0
    with bench.database("bench_metrics") as uri, bench.scratch("metrics") as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri)
        feed.run_once()
        for number in range(2 * _ROUNDS):
            update_rows(uri, changes, keys=_KEYS)
            if number % 4 in (0, 3):  # neither side always has the younger table
                without.append(feed.run_once())
                continue
            with _scraped() as (address, got):
                ours.append(feed.run_once(f"--metrics={address}"))
            scrapes += len(got)
    if scrapes < _ROUNDS:
        raise RuntimeError(f"/metrics was scraped only {scrapes} times")
    details = {"scrapes": scrapes, "ours": [each.details() for each in ours]}
    details["peer"] = [each.details() for each in without]
    yield Figure(
        name="log to JSON files, scraped each second",
        value=median(each.rate for each in ours),
        unit="rows/s",
        peer=median(each.rate for each in without),
        peer_name="without",
        target=_TARGET,
        details=details,
    )
    yield Figure(
        name="processor time of 1,000,000 rows, scraped",
        value=median(map(_cpu_s, ours)) * 1_000_000 / changes,
        unit="s",
        peer=median(map(_cpu_s, without)) * 1_000_000 / changes,
        peer_name="without",
        target=_TARGET,
    )


def _cpu_s(run: FeedRun) -> float:
    """Return the processor time of all processes of the run, from its first saved position to its last."""
    return sum(run.usage.cpu_between(run.started + run.saves[0][0], run.started + run.complete_s).values())


@contextmanager
def _scraped() -> Iterator[tuple[str, list[int]]]:
    """Scrape a free address each second inside the block; yield it, and the sizes of the answers so far."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    over, got = threading.Event(), list[int]()

    def scrape() -> None:
        while not over.wait(_EVERY_S):
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
                    got.append(len(answer.read()))
            except OSError:
                continue  # the run has not begun, or it has ended

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield address, got
    finally:
        over.set()
        thread.join()
