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
        doc="Servers with the same database, each with `uri` and `locality`: standbys, and the primary itself. The"
        " slot is created on the closest server that can decode, and the log and tables are read there. If no server"
        " is close, the source is used. The publication is created on the source.",
        uri=True,
    )
    scan_round: Duration = option(
        Duration(60.0),
        doc="How long each round of the initial scan uses one snapshot. The server keeps the log and old row versions"
        " for little longer than this, regardless of the size of the tables.",
    )
    scan_chunk_size: ByteSize = option(
        ByteSize(64 * MB), doc="Maximum bytes of a table, TOAST included, that one task of the initial scan reads."
    )
    snapshot_wait: Duration = option(
        Duration(30.0),
        doc="How long the creation of a replication slot or a snapshot waits for open write transactions before it is"
        " retried.",
    )
    lock_timeout: Duration = option(
        Duration(10.0),
        doc="How long the initial scan, or a lookup of large values, waits for an ACCESS SHARE lock on a table before"
        " it is retried. Only statements such as ALTER TABLE and VACUUM FULL block this lock.",
    )
    slot_name: str | None = option(
        None,
        doc="An existing replication slot. The changefeed begins at its confirmed position, and never "
        "creates or drops it. Without this option, the changefeed creates its own slot.",
    )
    publication_name: str | None = option(
        None,
        doc="An existing publication, created before the slot. The changefeed never creates, alters or drops "
        "it. Without this option, the changefeed creates its own publication.",
    )
    row_filter: bool = option(
        False,
        doc="Let the server omit changes whose key shows that the query, or the `where` of a table's section, excludes"
        " them. The publication that the changefeed creates gets a row filter for this. While the filter exists,"
        " PostgreSQL refuses to drop its columns or to change their types. After a change of the primary key, it"
        " refuses UPDATE and DELETE on the table until the changefeed has changed the filter, which takes as long as"
        " the changefeed is stopped or behind. Needs PostgreSQL 15. `cdc explain` shows the filter.",
    )
    failover: bool = option(
        False,
        doc="Create the replication slot as a failover slot, which standbys synchronize, so that the changefeed"
        " continues on a promoted standby. With slot_name, require a failover slot. Needs PostgreSQL 17.",
    )
    fetch_size: ByteSize = option(
        ByteSize(2 * MB),
        doc="Approximate number of bytes to fetch from the server and decode at a time. A larger transaction is"
        " split into parts of this size, and the rows of each part get a higher logical counter. Change this option"
        " only after a clean stop: after a crash, repeated rows of large transactions could get different timestamps.",
    )
    logical_decoding_work_mem: ByteSize = option(
        ByteSize(256 * MB),
        doc="How much memory the server may use for decoding before it writes parts of large transactions to its disk "
        "and reads them again. Overrides the server's setting of the same name.",
    )
    unchanged_toast: Literal["unavailable", "lookup"] = option(
        "unavailable",
        doc="What to do about a large value that an update leaves unchanged: the log does not contain it unless the"
        " table has REPLICA IDENTITY FULL. 'unavailable' leaves its column out of the message and lists the column in"
        " `unavailable`. 'lookup' reads the row's current value, which may be newer than the change. Values are always"
        " looked up while a table is scanned, after a move has skipped changes of the table, and for rows that take"
        " the key of another row.",
    )
    virtual_columns: Literal["omitted", "null"] = option(
        "omitted",
        doc="What to do with generated columns that are not in the log (virtual columns; before PostgreSQL 18, all"
        " generated columns): leave them out, or make them null in every row.",
    )
    removed_partitions: Literal["delete", "keep"] = option(
        "delete",
        doc="What happens to the rows of a detached partition: they are deleted at the sink, or stay there. If a"
        " partition is dropped and its rows should be deleted, the changefeed ends with an error.",
    )

    truncate: Literal["stop", "keep"] = option(
        "stop",
        doc="What happens when a watched table, or a partition of it, is truncated: the changefeed ends with an error,"
        " or it logs a warning and continues, and the rows stay at the sink. The log does not contain the truncated"
        " rows.",
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
            raise ValueError("slot_name must have 1 to 63 characters, only lower-case letters, digits and underscores")
        if self.publication_name is not None and not 1 <= len(self.publication_name.encode()) <= _NAME_BYTES:
            raise ValueError("publication_name must have 1 to 63 bytes")
