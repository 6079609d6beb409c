"""The options of a PostgreSQL source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_core import MB, ByteSize, Duration, option

__all__ = ["PostgresOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Options of the rangefeed. The source URI has the connection parameters of libpq."""

    scan_round: Duration = option(
        Duration(60.0),
        doc="How long one round of the initial scan uses one snapshot. The server keeps the log and old row versions "
        "for not much longer than this, regardless of the size of the tables.",
    )
    scan_chunk_size: ByteSize = option(
        ByteSize(64 * MB), doc="Maximum bytes of a table, TOAST included, that one task of the initial scan reads."
    )
    snapshot_wait: Duration = option(
        Duration(30.0),
        doc="How long to wait for open write transactions when a replication slot or a snapshot is created, before "
        "another attempt.",
    )
    lock_timeout: Duration = option(
        Duration(10.0),
        doc="How long the initial scan waits for an ACCESS SHARE lock on a table, before another attempt. Only "
        "statements such as ALTER TABLE and VACUUM FULL block this lock.",
    )
    fetch_size: ByteSize = option(
        ByteSize(2 * MB),
        doc="About how many bytes are fetched from the server and decoded at once. A larger transaction is cut into "
        "several fetches, and rows after each cut get a higher logical counter. Change this option only after a clean "
        "stop: after a crash, rows that are repeated could get other timestamps than before.",
    )

    removed_partitions: Literal["delete", "keep"] = option(
        "delete",
        doc="What happens to the rows of a partition that is detached: they are deleted at the sink, or stay there. A"
        " partition that is dropped while its rows should be deleted ends the changefeed.",
    )

    def __post_init__(self) -> None:
        for name in ("scan_round", "scan_chunk_size", "snapshot_wait", "lock_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if not 64 * 1024 <= self.fetch_size <= 64 * MB:
            raise ValueError("fetch_size must be between 64KB and 64MB")
