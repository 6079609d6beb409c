"""The options of a PostgreSQL source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from cdc_core import MB, ByteSize, Duration, option
from cdc_rangefeed_postgres.endpoints import parse_endpoints

_NAME_BYTES = 63
_MAX_WORK_MEM = 2047 << 30
_SLOT_NAME = re.compile(rf"[a-z0-9_]{{1,{_NAME_BYTES}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """Options of the rangefeed. The source URI has the connection parameters of libpq."""

    endpoints: tuple[dict[str, Any], ...] = option(
        (),
        doc="Servers that hold the same database, each with a `uri` and a `locality`: standbys, and possibly the"
        " primary itself. The slot is created on the closest server that can decode, and the log and tables are read"
        " there. If no server shares a locality tier with the coordinating process, the source is used. The"
        " publication is created on the source.",
        uri=True,
    )
    scan_round: Duration = option(
        Duration(60.0),
        doc="How long each round of the initial scan reads from its snapshot. The server retains the log and old row"
        " versions for only a little longer than this, however large the tables are.",
    )
    scan_chunk_size: ByteSize = option(
        ByteSize(64 * MB),
        doc="Maximum number of bytes of a table, including TOAST data, that one task of the initial scan reads.",
    )
    snapshot_wait: Duration = option(
        Duration(30.0),
        doc="How long to wait for open write transactions when creating a replication slot or a snapshot. After this"
        " time, cdc tries again to create it.",
    )
    lock_timeout: Duration = option(
        Duration(10.0),
        doc="How long the initial scan or a lookup of large values waits for an ACCESS SHARE lock on a table before"
        " retrying. Only statements such as ALTER TABLE and VACUUM FULL block this lock.",
    )
    slot_name: str | None = option(
        None,
        doc="Existing replication slot to use. The changefeed starts at the slot's confirmed position, and never"
        " creates or drops the slot. Without this option, the changefeed creates its own slot.",
    )
    publication_name: str | None = option(
        None,
        doc="Existing publication to use, which must have been created before the slot. The changefeed never creates,"
        " alters or drops this publication. Without this option, the changefeed creates its own publication.",
    )
    row_filter: bool = option(
        False,
        doc="Let the server omit changes whose key shows that the query, or the `where` in a table's section, excludes"
        " them. For this, the changefeed adds a row filter to the publication that it creates. While the filter"
        " exists, PostgreSQL refuses to drop the columns in the filter or to change their types. After a change to the"
        " primary key, PostgreSQL refuses UPDATE and DELETE on the table until the changefeed has changed the filter,"
        " which it cannot do while it is stopped or behind. Requires PostgreSQL 15 or later. `cdc explain` shows the"
        " filter.",
    )
    failover: bool = option(
        False,
        doc="Create the replication slot as a failover slot, which standbys synchronize, so that the changefeed"
        " continues on a promoted standby. If slot_name is set, that slot must be a failover slot. Requires PostgreSQL"
        " 17 or later.",
    )
    fetch_size: ByteSize = option(
        ByteSize(2 * MB),
        doc="Approximate number of bytes to fetch from the server and decode at a time. A larger transaction is split"
        " into parts of this size, and the rows of each part get a higher logical counter than those of the previous"
        " part. Change this option only after a clean stop: after a crash, repeated rows of large transactions could"
        " get different timestamps.",
    )
    logical_decoding_work_mem: ByteSize = option(
        ByteSize(256 * MB),
        doc="How much memory the server may use for decoding before it writes parts of large transactions to disk and"
        " reads them back. Overrides the server's setting of the same name.",
    )
    unchanged_toast: Literal["unavailable", "lookup"] = option(
        "unavailable",
        doc="What to do about a large value that an update leaves unchanged, which the log contains only if the table"
        " has REPLICA IDENTITY FULL. 'unavailable' leaves the column out of the message and lists its name in the"
        " `unavailable` member. 'lookup' reads the row's current value, which may be newer than the change. Values are"
        " always looked up while a table is scanned, after a move has skipped changes to the table, and for rows that"
        " take the key of another row.",
    )
    virtual_columns: Literal["omitted", "null"] = option(
        "omitted",
        doc="What to do with generated columns that are not in the log (virtual columns; before PostgreSQL 18, all"
        " generated columns): omit them, or write null for them in every row.",
    )
    removed_partitions: Literal["delete", "keep"] = option(
        "delete",
        doc="Whether the rows of a detached partition are deleted from the sink or kept there. With 'delete', the"
        " changefeed ends with an error if a partition is dropped before its rows are deleted.",
    )

    truncate: Literal["stop", "keep"] = option(
        "stop",
        doc="What to do when a watched table or one of its partitions is truncated: end the changefeed with an error,"
        " or log a warning, continue and leave the rows at the sink. The log does not contain the truncated rows.",
    )

    def __post_init__(self) -> None:
        parse_endpoints(self.endpoints)
        for name in ("scan_round", "scan_chunk_size", "snapshot_wait", "lock_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if not 64 * 1024 <= self.fetch_size <= 64 * MB:
            raise ValueError("fetch_size must be between 64KB and 64MB")
        if not 64 * 1024 <= self.logical_decoding_work_mem <= _MAX_WORK_MEM:
            raise ValueError("logical_decoding_work_mem must be between 64KB and 2047GB")
        if self.slot_name is not None and not _SLOT_NAME.fullmatch(self.slot_name):
            raise ValueError("slot_name must have 1 to 63 characters, only lowercase letters, digits and underscores")
        if self.publication_name is not None and not 1 <= len(self.publication_name.encode()) <= _NAME_BYTES:
            raise ValueError("publication_name must have 1 to 63 bytes")
