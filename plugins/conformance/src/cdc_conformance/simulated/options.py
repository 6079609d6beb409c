"""The options of a simulated source."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import Duration, option

__all__ = ["SimulatedOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """Options of the rangefeed. The source URI names the directory of the database."""

    scan_chunk_rows: int = option(100, doc="Maximum number of rows that one task of the initial scan reads.")
    batch_rows: int = option(1000, doc="Maximum number of rows in a batch.")
    time_passes: bool = option(
        True,
        doc="Let the cluster's time pass while the changefeed waits, to close timestamps. If off, time passes only by "
        "`tick`.",
    )
    idle_interval: Duration = option(
        Duration(0.2), doc="How often time passes in an idle database; 0 means each time the changefeed looks."
    )

    def __post_init__(self) -> None:
        for name in ("scan_chunk_rows", "batch_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' must be at least 1")
