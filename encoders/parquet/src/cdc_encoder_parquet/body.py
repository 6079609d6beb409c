"""Bodies of Parquet files. A row group is written as soon as it is full."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_core import ContractError, Envelope, FileBody, RowBatch, TableSchema
from cdc_encoder_parquet.columns import file_columns, file_metadata, file_schema
from cdc_encoder_parquet.options import ParquetOptions

_LEVELS = {"gzip": 4, "zstd": 3}
"""The levels of the cloud-storage sink. Arrow's default for gzip is 9."""
_LARGE_ROW_BYTES = 4 * 1024 * 1024
"""A file whose first row group has larger rows on average has no dictionaries and no statistics."""
_ROW_BYTES = 32
"""Size of a row's event type and timestamps, which is added to that of its values."""


class ParquetBody(FileBody):
    """One file. Its bytes depend only on its rows, not on how these are divided into batches.

    A row group ends with the row that brings its values to `parquet_row_group_size` bytes.
    """

    def __init__(self, *, envelope: Envelope, options: ParquetOptions, compression: str) -> None:
        self._envelope = envelope
        self._options = options
        self._compression = compression
        self._table: TableSchema | None = None
        self._schema: pa.Schema | None = None
        self._out = _Out()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self.held_bytes = 0

    def write(self, rows: RowBatch) -> bytes:
        """Add *rows* and return the row groups that are full.

        Raises: ContractError when the schema of the rows differs from that of earlier rows.
        """
        if len(rows) == 0:
            return b""
        schema = self._schema_of(rows)
        batch = file_columns(rows, schema, self._envelope, self._options)
        self._table, self._schema = rows.schema, schema
        ends = np.cumsum(_sizes(rows))
        row, written = 0, 0
        while row < len(rows):
            wanted = written + max(self._options.parquet_row_group_size - self.held_bytes, 1)
            end = min(int(np.searchsorted(ends, wanted)) + 1, len(rows))
            self._waiting.append(batch.slice(row, end - row))
            self.held_bytes += int(ends[end - 1]) - written
            row, written = end, int(ends[end - 1])
            if self.held_bytes >= self._options.parquet_row_group_size:
                self._write_group()
        return self._out.taken()

    def finish(self) -> bytes:
        """Return the last row group and the footer. A body without rows has no schema and therefore no bytes."""
        if self._waiting:
            self._write_group()
        if self._writer is not None:
            self._writer.close()
        return self._out.taken()

    def _schema_of(self, rows: RowBatch) -> pa.Schema:
        if self._table is None or self._schema is None:
            return file_schema(rows.schema, self._envelope, self._options)
        if self._table is not rows.schema and self._table != rows.schema:
            raise ContractError(f"a file of table {self._table.name} got rows of two schema versions")
        return self._schema

    def _write_group(self) -> None:
        # One chunk: otherwise the batches would determine where pages end.
        table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._waiting, self.held_bytes = [], 0
        writer = self._writer
        large = table.nbytes > len(table) * _LARGE_ROW_BYTES
        if writer is None:
            writer = self._writer = self._opened(large=large)
        writer.write_table(table, row_group_size=len(table))
        if large:
            pa.default_memory_pool().release_unused()  # twice the rows

    def _opened(self, *, large: bool) -> pq.ParquetWriter:
        assert self._table is not None
        writer = pq.ParquetWriter(
            self._out,
            self._schema,
            compression=self._compression,
            compression_level=_LEVELS.get(self._compression),
            store_schema=False,  # Parquet's types are sufficient.
            # Both copy values several times, and neither serves readers of large ones.
            use_dictionary=not large,
            write_statistics=not large,
        )
        writer.add_key_value_metadata(file_metadata(self._table))
        return writer


class _Out:
    """A write-only file object. `taken` returns the bytes written since the last call."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._written = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._chunks.append(bytes(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        chunks, self._chunks = self._chunks, []
        return b"".join(chunks)


def _sizes(rows: RowBatch) -> npt.NDArray[np.int64]:
    """Return the size of each row in bytes. Null values count as empty or as their fixed width."""
    sizes = np.full(len(rows), _ROW_BYTES, np.int64)
    for name in ("after", "before"):
        if name in rows.batch.schema.names:
            for array in rows.column(name).flatten():
                if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
                    sizes += pc.fill_null(pc.binary_length(array), 0).to_numpy()
                else:
                    sizes += max(array.type.bit_width // 8, 1)
    return sizes
