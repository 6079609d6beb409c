"""What the charts show: seconds while somebody watches, kept in memory, and a day of minutes, kept in the store."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from starlette.requests import Request

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.store.moments import MINUTE_S, Moment
from cdc_core.store.reports import Report
from cdc_core.telemetry import metrics
from cdc_core.telemetry.stages import STAGES
from cdc_core.telemetry.tally import RETAINED
from cdc_core.web.requests import deployment_of

_PERCENTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A point of the charts. Latencies and shares are None while no row was delivered in the time that they cover."""

    at: float
    lag_s: float | None
    rows_per_s: float | None
    latencies_s: Sequence[float | None]
    """At the percentiles 50, 95 and 99."""
    retained_bytes: float | None
    shares: Mapping[str, float]
    """The part of the time of tasks at each stage."""

    @classmethod
    def none(cls, at: float) -> Measurement:
        """Return a point at which nothing was measured: charts have no line across it."""
        return cls(
            at=at,
            lag_s=None,
            rows_per_s=None,
            latencies_s=[None] * len(_PERCENTILES),
            retained_bytes=None,
            shares={},
        )

    @property
    def segments(self) -> list[tuple[str, float, float]]:
        """The bar of `shares`: each stage, where it begins and how wide it is, as parts of the bar."""
        found, begin = [], 0.0
        for stage in STAGES:
            share = self.shares.get(stage, 0.0)
            if share >= 0.001:
                found.append((stage, begin, share))
            begin += share
        return found

    def to_json(self) -> list[float | None]:
        """Return the point as the charts take it."""
        return [self.at, self.lag_s, self.rows_per_s, *self.latencies_s, self.retained_bytes]


def moment_of(report: Report) -> Moment:
    """Return what *report* says, for a later comparison."""
    return Moment.of(
        report.tally,
        at=report.now.timestamp(),
        lag_s=report.behind_s,
        retained_bytes=report.gauges.get(RETAINED),
    )


def measure(now: Moment, before: Moment | None) -> Measurement:
    """Return the point at *now*, with rates and latencies since *before*; without one, since the beginning."""
    elapsed = None if before is None else now.at - before.at
    rows = now.rows - (0.0 if before is None else before.rows)
    counts = list(now.latency_counts)
    if before is not None:
        counts = [count - earlier for count, earlier in zip(counts, before.latency_counts, strict=False)]
    spent = {
        stage: max(0.0, seconds - (0.0 if before is None else before.stages[stage]))
        for stage, seconds in now.stages.items()
    }
    total = sum(spent.values())
    return Measurement(
        at=now.at,
        lag_s=now.lag_s,
        rows_per_s=max(0.0, rows) / elapsed if elapsed else None,
        latencies_s=[quantile(counts, metrics.COMMIT_LATENCY.buckets, share) for share in _PERCENTILES],
        retained_bytes=now.retained_bytes,
        shares={stage: seconds / total for stage, seconds in spent.items()} if total > 0 else {},
    )


def quantile(counts: Sequence[float], bounds: Sequence[float], share: float) -> float | None:
    """Return the value below which *share* of what was counted lies, as Prometheus' `histogram_quantile` does.

    *counts* are those of each bucket, the last one of those above all *bounds*, for which the last bound stands.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank, below, lower = share * total, 0.0, 0.0
    for count, bound in zip(counts, bounds, strict=False):
        if count > 0 and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return bounds[-1]


INTERVAL_S = 1.0
_lock = threading.Lock()
_POINTS = 900
_CHANGEFEEDS = 500
"""Of more changefeeds than these, the others have no charts: the memory that is used has a limit."""
_WINDOW_S = 10.0
"""Rates and latencies are of about so much time: progress is saved only once a step."""
_GAP_S, _LONG_GAP_S = 10.0, 2.5 * MINUTE_S
"""Between points further apart nothing was measured: of those in memory, and next to one of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Every changefeed as of one moment. Holds no secret."""

    reports: Sequence[Report]
    measured: dict[str, Measurement]


@dataclass(slots=True)
class _Kept:
    points: deque[Measurement] = field(default_factory=lambda: deque(maxlen=_POINTS))
    moments: deque[Moment] = field(default_factory=deque)


class History:
    """Reads the store when it is asked, at most once a second, however many people watch. Safe with several threads."""

    def __init__(self, changefeeds: Changefeeds) -> None:
        self._changefeeds = changefeeds
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._read_at = float("-inf")
        self._snapshot = Snapshot(reports=(), measured={})

    def snapshot(self) -> Snapshot:
        """Return all changefeeds, read within the last second. Raises: RetryableError from the store."""
        with self._lock:
            if time.monotonic() - self._read_at >= INTERVAL_S * 0.9:
                self._read()
                self._read_at = time.monotonic()
            return self._snapshot

    def points(self, name: str) -> list[Measurement]:
        """Return the measurements of a changefeed within a day, the oldest first, with `Measurement.none` in gaps.

        Raises: RetryableError from the store.
        """
        with self._lock:
            kept = self._kept.get(name)
            seconds = [] if kept is None else list(kept.points)
        watched = {point.at // MINUTE_S for point in seconds}
        kept_minutes = _by_minute(self._changefeeds.moments(name))
        minutes = [point for point in kept_minutes if point.at // MINUTE_S not in watched]
        points = [(point, _GAP_S) for point in seconds] + [(point, _LONG_GAP_S) for point in minutes]
        points.sort(key=lambda entry: entry[0].at)
        found = [point for point, _ in points[:1]]
        for (before, gap_s), (now, next_gap_s) in pairwise(points):
            if now.at - before.at > max(gap_s, next_gap_s):
                found.append(Measurement.none((before.at + now.at) / 2))
            found.append(now)
        return found

    def _read(self) -> None:
        found = self._changefeeds.reports()
        names = {report.known.name for report in found}
        for gone in self._kept.keys() - names:
            del self._kept[gone]
        measured = {}
        for report in found:
            name, now = report.known.name, moment_of(report)
            kept = self._kept.get(name)
            if kept is None:
                kept = _Kept()
                if len(self._kept) < _CHANGEFEEDS:
                    self._kept[name] = kept
            measured[name] = point = measure(now, _before(kept.moments, now.at))
            kept.points.append(point)
            kept.moments.append(now)
        self._snapshot = Snapshot(reports=found, measured=measured)


def history_of(request: Request) -> History:
    """Return the history of the server that got *request*, made with the first request."""
    state = request.app.state
    with _lock:
        found: History | None = getattr(state, "history", None)
        if found is None:
            found = state.history = History(deployment_of(request).changefeeds)
    return found


def _by_minute(moments: Sequence[Moment]) -> Iterator[Measurement]:
    """Yield the points at *moments*; the first one after a gap has no rate."""
    before = None
    for now in moments:
        yield measure(now, before if before is not None and now.at - before.at <= _LONG_GAP_S else now)
        before = now


def _before(moments: deque[Moment], now: float) -> Moment | None:
    """Return the newest moment that the window does not cover anymore, or the oldest one; forget what is older."""
    while len(moments) > 1 and moments[1].at <= now - _WINDOW_S:
        moments.popleft()
    return moments[0] if moments else None
