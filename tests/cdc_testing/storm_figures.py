"""What a storm was, in figures."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["JobFigures", "StormFigures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """What a consumer of one job got. `late` counts what a thawed node's last call added after it was replaced."""

    sink: str
    locality: str
    epoch: int
    rows: int
    repeats: int
    marks: int
    late: int


@dataclass(slots=True)
class StormFigures:
    """Recoveries are by event, in seconds from the event: until another node had claimed the job (`claimed`), and until
    its high-water mark moved there (`delivered`). `same`: until jobs delivered that no other node had to take over.
    """

    events: Counter[str] = field(default_factory=Counter)
    claimed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    delivered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    same: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    lasted_s: float = 0.0

    def slow(self, limit_s: float) -> int:
        """Return how many recoveries took longer than *limit_s*."""
        return sum(seconds > limit_s for found in (self.delivered, self.same) for seconds in _all(found))

    def lines(self, limit_s: float) -> list[str]:
        """Return the figures as tables; *limit_s* is how long a recovery may take."""
        total = self.events.total()
        lines = [f"{'event':18} {'n':>3} {'claimed':>20} {'delivered':>20} {'not moved':>20}   median worst (n), s"]
        for event, count in sorted(self.events.items()):
            cells = [_median_and_worst(found[event]) for found in (self.claimed, self.delivered, self.same)]
            lines.append(f"{event:18} {count:3} " + " ".join(f"{cell:>20}" for cell in cells))
        cells = [_median_and_worst(_all(found)) for found in (self.claimed, self.delivered, self.same)]
        lines.append(f"{'all':18} {total:3} " + " ".join(f"{cell:>20}" for cell in cells))
        recoveries = len(_all(self.delivered)) + len(_all(self.same))
        lines.append(
            f"{total} events in {self.lasted_s:.0f} s, one every {self.lasted_s / max(total, 1):.1f} s;"
            f" {self.slow(limit_s)} of {recoveries} recoveries took longer than {limit_s:g} s"
        )
        lines.append(
            f"{'job':8} {'sink':6} {'locality':10} {'epoch':>5} {'rows':>9} {'repeats':>8} {'marks':>7} {'late':>5}"
        )
        for name, job in self.jobs.items():
            counts = f"{job.epoch:5} {job.rows:9} {job.repeats:8} {job.marks:7} {job.late:5}"
            lines.append(f"{name:8} {job.sink:6} {job.locality or '-':10} {counts}")
        sums = [sum(getattr(job, what) for job in self.jobs.values()) for what in ("rows", "repeats", "marks", "late")]
        rows, repeats, marks, late = sums
        lines.append(f"{'all':8} {'':6} {'':10} {'':5} {rows:9} {repeats:8} {marks:7} {late:5}")
        return lines


def _all(found: dict[str, list[float]]) -> list[float]:
    return [seconds for of_event in found.values() for seconds in of_event]


def _median_and_worst(seconds: Sequence[float] | Iterable[float]) -> str:
    found = list(seconds)
    return f"{statistics.median(found):.1f} {max(found):.1f} ({len(found)})" if found else "-"
