"""What is counted, by metric: in a task, and in the saved progress of a changefeed.

There are the gauges of a source too, under the source's own names, which say the unit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from cdc_core.telemetry.metrics import SOURCE_BYTES, SOURCE_SECONDS, SOURCE_VALUE, Metric, Sample

_NOTHING: Mapping[str, float] = MappingProxyType({})
_DIGITS = 6
"""Seconds are kept to the microsecond: the saved text stays short."""


class Tally:
    """Values by metric. Begins with what `saved` of another one returned; that is not changed.

    Only for metrics with `saved_as`. Not safe with several threads.
    """

    def __init__(self, saved: Mapping[str, float] = _NOTHING) -> None:
        self._values = dict(saved)

    def saved(self) -> dict[str, float]:
        """Return everything by key. Buckets in which nothing was counted have none."""
        return dict(self._values)

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Count *amount* more."""
        self._add(metric.key(*labels), amount)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._values[metric.key(*labels)] = value

    def replace(self, start: str, values: Mapping[str, float]) -> None:
        """Have *values* by key in place of those whose keys begin with *start*: for what has no metric of its own."""
        self._values = {key: value for key, value in self._values.items() if not key.startswith(start)} | dict(values)

    def clear(self, metric: Metric, *labels: str) -> float:
        """Forget a gauge, and return what it was."""
        return self._values.pop(metric.key(*labels), 0.0)

    def observe(self, metric: Metric, value: float, *, times: int = 1) -> None:
        """Count *value* in a histogram, as if it had come so many *times*."""
        self._add(metric.bucket_keys[bisect_left(metric.buckets, value)], times)
        self._add(metric.sum_key, value * times)

    def observe_all(self, metric: Metric, values: np.ndarray) -> None:
        """Count each of *values* in a histogram. Costs some nanoseconds for each."""
        if len(values):
            found = np.bincount(np.searchsorted(metric.buckets, values), minlength=len(metric.buckets) + 1)
            for index in np.flatnonzero(found):
                self._add(metric.bucket_keys[index], int(found[index]))
            self._add(metric.sum_key, float(values.sum()))

    def merge(self, counted: Mapping[str, float]) -> None:
        """Add what a task has counted: the `saved` of its tally, without gauges."""
        for key, amount in counted.items():
            self._add(key, amount)

    def value(self, metric: Metric, *labels: str) -> float:
        """Return the value of a counter or a gauge; 0 when there is none."""
        return self._values.get(metric.key(*labels), 0.0)

    def samples(self, metric: Metric) -> Iterator[Sample]:
        """Yield the values of *metric*: with one label, those of each of its values so far."""
        if metric.kind == "histogram":
            counts = [self._values.get(key, 0.0) for key in metric.bucket_keys]
            yield Sample(metric, self._values.get(metric.sum_key, 0.0), counts=counts)
        elif not metric.labels:
            yield Sample(metric, self.value(metric))
        else:
            start = f"{metric.saved_as}."
            for key, value in self._values.items():
                if key.startswith(start):
                    yield Sample(metric, value, (key.removeprefix(start),))

    def _add(self, key: str, amount: float) -> None:
        self._values[key] = round(self._values.get(key, 0) + amount, _DIGITS)


RETAINED = "retained_bytes"
"""The gauge that is shown first, of sources that have it: how much log they keep for the changefeed."""
_START = "source."
_ASKED, _MEASURED = "measuring_since", "measured_at"
_UNITS: Mapping[str, Metric] = {"_bytes": SOURCE_BYTES, "_s": SOURCE_SECONDS}
"""By how the names of gauges end."""


def keep_gauges(tally: Tally, gauges: Mapping[str, float], *, at: float) -> None:
    """Set the *gauges* that the source has given *at* a time since 1970, in place of all that it gave before."""
    tally.replace(_START, {f"{_START}{name}": value for name, value in gauges.items()})
    tally.replace(_MEASURED, {_MEASURED: at})


def measured_at(tally: Tally) -> float | None:
    """Return when the source has given the gauges, None when it never did."""
    return tally.saved().get(_MEASURED)


def measure_once(tally: Tally, *, at: float, every_s: float) -> bool:
    """Return whether nobody has begun or ended measuring within *every_s* before *at*; if so, note that this begins."""
    saved = tally.saved()
    is_due = not any(0 <= at - saved.get(key, 0.0) < every_s for key in (_ASKED, _MEASURED))
    if is_due:
        tally.replace(_ASKED, {_ASKED: at})
    return is_due


def gauges_of(tally: Tally) -> dict[str, float]:
    """Return the gauges by the source's names."""
    return {name.removeprefix(_START): value for name, value in tally.saved().items() if name.startswith(_START)}


def gauge_samples(gauges: Mapping[str, float]) -> Iterator[Sample]:
    """Yield the gauges as samples of metrics with base units: `retained_bytes` is what is "retained", in bytes."""
    for name, value in gauges.items():
        for ending, metric in _UNITS.items():
            if name.endswith(ending):
                yield Sample(metric, value, (name.removesuffix(ending),))
                break
        else:
            yield Sample(SOURCE_VALUE, value, (name,))
