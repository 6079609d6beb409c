"""The executors' part of PostgreSQL: reads slices of the log and of the initial scan."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import RangefeedContext, RowBatch, Slice, SliceReader, SpanMark, TableName, TableSchema, Timestamp
from cdc_rangefeed_postgres.client_errors import ClientError
from cdc_rangefeed_postgres.connection import Server, give_any_bytes
from cdc_rangefeed_postgres.log_slice import LogSlice, decoder_of, read_log
from cdc_rangefeed_postgres.lsn import lsn_text
from cdc_rangefeed_postgres.pgoutput import LogDecoder
from cdc_rangefeed_postgres.read_ahead import StillReadingError
from cdc_rangefeed_postgres.scan_slice import ScanSlice, read_scan
from cdc_rangefeed_postgres.types import TableVersion
from cdc_rangefeed_postgres.unchanged_toast import TableLookup

_LOOKUP = "lookup"


class PostgresReader(SliceReader):
    """See `cdc_core.SliceReader`. Opens one connection for the log and one for the initial scan, and keeps both.

    Large values are looked up on a further connection: all with the option `unchanged_toast = "lookup"`, otherwise
    those of tables that are being scanned or were moved forward, and of rows that take the key of another row.
    """

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._server = Server(context)
        self._connections: dict[str, Any] = {}
        self._decoder: LogDecoder | None = None
        self._unchecked_texts = False

    @property
    def unchecked_texts(self) -> bool:
        return self._unchecked_texts

    def check(self) -> None:
        self._connect("log")

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        self._decoder = None
        role = "log" if isinstance(slice_.payload, LogSlice) else "scan"
        if self._server.use(slice_.payload.endpoint):
            self.close()
        connection = self._connect(role)
        finished = False
        try:
            # Closed here, whatever ends this: a thread may still use the connection.
            with closing(self._read(slice_.payload, connection)) as items:
                yield from _with_null_columns(items, slice_.payload.all_versions)
            finished = True
        except StillReadingError as error:
            error.afterwards(self._connections.pop(role).close)
            raise
        finally:
            if not finished:
                self._abandon(role)
                self._abandon(_LOOKUP)

    def position_of(self, updated: Timestamp) -> str | None:
        lsn = None if self._decoder is None else self._decoder.lsn_of(updated)
        return None if lsn is None else lsn_text(lsn)

    def close(self) -> None:
        for role in list(self._connections):
            self._abandon(role)

    def _read(self, payload: LogSlice | ScanSlice, connection: Any) -> Generator[RowBatch | SpanMark]:
        options, diff, mvcc = self.context.options, self.context.diff, self.context.mvcc
        if isinstance(payload, ScanSlice):
            restricted = self.context.restriction
            return read_scan(self._server, connection, payload, options, diff=diff, mvcc=mvcc, restricted=restricted)
        # During a scan, an update can move a row from a block that is not scanned yet to one that was. Then its version
        # in the log is the first that is delivered, and no earlier one has its values.
        lookup = TableLookup(self._server, lambda: self._connect(_LOOKUP))
        self._decoder = decoder_of(payload, self.context, lookup)
        return read_log(self._server, connection, payload, options, self._decoder)

    def _connect(self, role: str) -> Any:
        if role not in self._connections:
            with self._server.translated("connecting"):
                connection = self._connections[role] = self._server.connect_arrow(role)
                self._unchecked_texts = give_any_bytes(connection)
                if role == _LOOKUP:
                    with connection.cursor() as cursor:
                        cursor.execute(f"SET lock_timeout = '{int(self.context.options.lock_timeout * 1000)}ms'")
        return self._connections[role]

    def _abandon(self, role: str) -> None:
        """Close a connection, even in the middle of a query."""
        connection = self._connections.pop(role, None)
        if connection is not None:
            with suppress(*ClientError):
                connection.adbc_connection.cancel()
            with suppress(*ClientError):
                connection.close()


def _with_null_columns(
    items: Iterator[RowBatch | SpanMark], versions: Iterable[TableVersion]
) -> Iterator[RowBatch | SpanMark]:
    """Return *items* with the null columns that *versions* add: generated columns whose values are not in the log."""
    schemas = {
        (version.schema.name, version.schema.version): version.row_schema for version in versions if version.nulls
    }
    if not schemas:
        return items
    return (_widened(item, schemas) if isinstance(item, RowBatch) else item for item in items)


def _widened(rows: RowBatch, schemas: dict[tuple[TableName, int], TableSchema]) -> RowBatch:
    schema = schemas.get((rows.schema.name, rows.schema.version))
    if schema is None:
        return rows
    columns = {name: rows.column(name) for name in rows.batch.schema.names}
    for name in ("after", "before"):
        if name in columns:
            columns[name] = _with_nulls(columns[name], schema.after_type)
    return RowBatch.of(schema, **columns)


def _with_nulls(image: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    known = image.type.num_fields
    arrays = [image.field(index) for index in range(known)]
    arrays += [pa.nulls(len(image), type_.field(index).type) for index in range(known, type_.num_fields)]
    return RowBatch.struct(type_, arrays, mask=pc.is_null(image))
