"""The gauges of a source in the saved progress of a changefeed: under the source's own names, which say the unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc_core.telemetry.metrics import SOURCE_BYTES, SOURCE_SECONDS, SOURCE_VALUE, Metric, Sample
from cdc_core.telemetry.tally import Tally

__all__ = ["RETAINED", "gauge_samples", "gauges_of", "keep_gauges", "measure_once", "measured_at"]

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
    """Return whether nobody has measured, or begun to, within *every_s* before *at*; then note that somebody begins."""
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
