"""What a benchmark found: figures, the table that people read, and the file that programs read."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a figure should reach. `per_peer`: so many times the peer's; `at_least`, `below`: in the figure's unit."""

    at_least: float | None = None
    below: float | None = None
    per_peer: float | None = None

    def met(self, value: float, ratio: float | None) -> bool:
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.per_peer is None or (ratio is not None and ratio >= self.per_peer))
        )

    def shown(self, unit: str) -> str:
        parts = []
        if self.at_least is not None:
            parts.append(f">= {_shown(self.at_least, unit)}")
        if self.below is not None:
            parts.append(f"< {_shown(self.below, unit)}")
        if self.per_peer is not None:
            parts.append(f">= {self.per_peer:g} x")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured thing. `unit` is 'rows/s', 's' or 'bytes'; `peer` is the other's figure in the same unit.

    `details` go to the JSON file only.
    """

    name: str
    value: float
    unit: str
    peer: float | None = None
    peer_name: str = ""
    target: Target | None = None
    peak_rss: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer: more of a rate, less of anything else."""
        if not self.peer or not self.value:
            return None
        return self.value / self.peer if self.unit == "rows/s" else self.peer / self.value

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self.value, self.ratio)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of *values* that at least *share* of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(round(len(ordered) * share, 9)) - 1)]


def print_table(figures: Sequence[Figure]) -> None:
    table = Table(title="benchmarks", title_justify="left")
    table.add_column("what")
    for heading in ("figure", "peer", "ratio", "peak RSS", "target"):
        table.add_column(heading, justify="right")
    table.add_column("met")
    for figure in figures:
        peer = "" if figure.peer is None else f"{_shown(figure.peer, figure.unit)} {figure.peer_name}"
        table.add_row(
            figure.name,
            _shown(figure.value, figure.unit),
            peer,
            "" if figure.ratio is None else f"{figure.ratio:.1f} x",
            "" if figure.peak_rss is None else _shown(figure.peak_rss, "bytes"),
            "" if figure.target is None else figure.target.shown(figure.unit),
            {None: "", True: "yes", False: "NO"}[figure.met],
        )
    Console(width=150, soft_wrap=False).print(table)


def write_json(path: Path, figures: Sequence[Figure], **run: Any) -> None:
    """Write all figures, what machine they come from, and *run*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": psutil.cpu_count(),
            "memory": psutil.virtual_memory().total,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        **run,
        "figures": [{**asdict(figure), "ratio": figure.ratio, "met": figure.met} for figure in figures],
    }
    path.write_text(json.dumps(value, indent=1, default=str) + "\n")


def _shown(value: float, unit: str) -> str:
    if unit == "rows/s":
        return f"{value:,.0f}/s"
    if unit == "bytes":
        return f"{value / GIB:.2f} GiB"
    return f"{value:.3f} {unit}"
