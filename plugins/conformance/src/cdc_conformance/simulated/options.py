"""What a user may set for a simulated source."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.options import Duration, option

__all__ = ["SimulatedOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """Options of the rangefeed. The database is a directory, which stands in the source URI."""

    scan_chunk_rows: int = option(100, doc="Most rows that one task of the initial scan reads.")
    batch_rows: int = option(1000, doc="Most rows of one batch.")
    time_passes: bool = option(
        True,
        doc="Let the cluster's time pass while the changefeed waits for it, so that timestamps are closed. Without it "
        "only a test lets time pass.",
    )
    idle_interval: Duration = option(
        Duration(0.2), doc="How often time passes in a database in which nothing else happens; 0 is at every look."
    )

    def __post_init__(self) -> None:
        for name in ("scan_chunk_rows", "batch_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")
