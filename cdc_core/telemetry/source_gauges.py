"""The gauges of a source in the saved progress of a changefeed: under the source's own names, which say the unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc_core.telemetry.metric import Metric, Sample
from cdc_core.telemetry.metrics import SOURCE_BYTES, SOURCE_SECONDS, SOURCE_VALUE
from cdc_core.telemetry.tally import Tally

__all__ = ["gauge_samples", "gauges_of", "keep_gauges"]

_START = "source."
_UNITS: Mapping[str, Metric] = {"_bytes": SOURCE_BYTES, "_s": SOURCE_SECONDS}
"""By how the names of gauges end."""


def keep_gauges(tally: Tally, gauges: Mapping[str, float]) -> None:
    """Set the *gauges* that the source has given. One that it does not give any more keeps its last value."""
    tally.update({f"{_START}{name}": value for name, value in gauges.items()})


def gauges_of(tally: Tally) -> dict[str, float]:
    """Return the gauges by the source's names."""
    return {name.removeprefix(_START): value for name, value in tally.saved().items() if name.startswith(_START)}


def gauge_samples(tally: Tally) -> Iterator[Sample]:
    """Yield the gauges as samples of metrics with base units: `retained_bytes` is what is "retained", in bytes."""
    for name, value in gauges_of(tally).items():
        for ending, metric in _UNITS.items():
            if name.endswith(ending):
                yield Sample(metric, value, (name.removesuffix(ending),))
                break
        else:
            yield Sample(SOURCE_VALUE, value, (name,))
