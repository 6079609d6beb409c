"""Fetching the log alone: messages of a slot through ADBC as Arrow, not looked at."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.report import Figure
from benchmarks.slot import backlog
from benchmarks.timing import fastest_s


def run(bench: Bench) -> Iterator[Figure]:
    changes = bench.sizes.part_rows
    with backlog(bench, changes) as slot:
        seconds = fastest_s(lambda: sum(len(messages) for messages in slot.messages()))
    yield Figure(name="part: fetch the log as Arrow", value=changes / seconds, unit="rows/s")
