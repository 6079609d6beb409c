"""What a metric is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

__all__ = ["Kind", "Metric", "Sample"]

Kind = Literal["counter", "gauge", "histogram"]
_ENDINGS = {"counter": "_total"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric, as it is exposed and documented.

    `unit` is a base unit, or what is counted. `labels` are its own; those of all changefeeds come first. `buckets` are
    the upper bounds of a histogram, without infinity. `saved_as` is the name under which a changefeed's saved progress
    keeps it: for good, as totals outlive versions. Other metrics are computed when somebody asks.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    saved_as: str | None = None
    bucket_keys: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Where the saved progress keeps the count of each bucket, the last being those above all bounds."""

    def __post_init__(self) -> None:
        if not self.name.endswith(_ENDINGS.get(self.kind, "")) or bool(self.buckets) != (self.kind == "histogram"):
            raise ValueError(f"metric {self.name} is not a {self.kind}")
        keys = [f"{self.saved_as}/{bound:g}" for bound in (*self.buckets, float("inf"))]
        object.__setattr__(self, "bucket_keys", tuple(keys))

    @property
    def sum_key(self) -> str:
        """Where the saved progress keeps the sum of a histogram."""
        return f"{self.saved_as}/sum"

    def key(self, *labels: str) -> str:
        """Return the name of its value with these *labels* in the saved progress."""
        if self.saved_as is None or len(labels) != len(self.labels):
            raise ValueError(f"metric {self.name} is not saved with the labels {labels}")
        return ".".join((self.saved_as, *labels))


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric that is a counter or a gauge; of a histogram the count by bucket, the last being those above
    all bounds, and the sum.

    `since` is when a total began at 0; None: with the process.
    """

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    counts: Sequence[float] = ()
    since: datetime | None = None
