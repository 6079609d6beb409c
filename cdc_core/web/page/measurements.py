"""What the charts show of a changefeed at one moment, and what is computed from two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc_core.store.moments import Moment
from cdc_core.store.reports import Report
from cdc_core.telemetry import metrics
from cdc_core.telemetry.stages import STAGES
from cdc_core.telemetry.tally import RETAINED

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
