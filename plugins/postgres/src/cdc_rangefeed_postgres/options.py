"""What a user may set for a PostgreSQL source."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.options import MB, ByteSize, Duration, option

__all__ = ["PostgresOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Options of the rangefeed. How to connect stands in the source URI, in libpq's own parameters."""

    scan_round: Duration = option(
        Duration(60.0),
        doc="How long one round of the initial scan uses one snapshot. Neither the log nor old row versions are held "
        "much longer than this, however large the tables are.",
    )
    scan_chunk_size: ByteSize = option(
        ByteSize(64 * MB), doc="Most bytes of a table, TOAST included, that one task of the initial scan reads."
    )
    snapshot_wait: Duration = option(
        Duration(30.0),
        doc="How long to wait for open write transactions when a replication slot or a snapshot is created, before "
        "trying anew.",
    )
    lock_timeout: Duration = option(
        Duration(10.0),
        doc="How long the initial scan waits for the weakest lock on a table (ACCESS SHARE), which only statements "
        "such as ALTER TABLE and VACUUM FULL hold up, before trying anew.",
    )
    fetch_size: ByteSize = option(
        ByteSize(2 * MB),
        doc="About how many bytes are fetched from the server and decoded at once. A transaction of more bytes is cut"
        " here, and rows behind each cut get a higher logical counter: change it only after a clean stop, else the"
        " repeats after a crash could carry other timestamps than before.",
    )

    def __post_init__(self) -> None:
        for name in ("scan_round", "scan_chunk_size", "snapshot_wait", "lock_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if not 64 * 1024 <= self.fetch_size <= 64 * MB:
            raise ValueError("fetch_size must be between 64KB and 64MB")
