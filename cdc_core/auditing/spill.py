"""Versions of rows on disk, in partitions by key: as many as fit into memory one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core.auditing.layout import KEY_HASHES

_BITS = 6
PARTITIONS = 1 << _BITS
_MAX_BITS = 24
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4")


class Spill:
    """Takes versions of the rows of one table, from one side, and gives them back by partition of their keys.

    Memory: *buffer_bytes*. Every partition is one file below *directory*, with several Arrow streams one after the
    other. *shift* says which bits of the hash choose the partition.
    """

    def __init__(self, directory: Path, *, buffer_bytes: int = 32 << 20, shift: int = 64 - _BITS) -> None:
        self._directory = directory
        self._buffer_bytes = buffer_bytes
        self._shift = shift
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._bytes = [0] * PARTITIONS
        self.rows = 0
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, versions: pa.Table) -> None:
        """Take *versions*, of a `Layout`."""
        self._pending.append(versions)
        self._pending_bytes += versions.nbytes
        self.rows += len(versions)
        if self._pending_bytes >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory."""
        if not self._pending:
            return
        versions = _joined(self._pending)
        self._pending, self._pending_bytes = [], 0
        places = (versions.column(KEY_HASHES[0]).to_numpy() >> np.uint64(self._shift)) & np.uint64(PARTITIONS - 1)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places.astype(np.int64), minlength=PARTITIONS))
        (batch,) = versions.take(pa.array(order)).combine_chunks().to_batches()
        start = 0
        for partition, end in enumerate(ends):
            if end > start:
                self._append(partition, batch.slice(start, end - start))
            start = int(end)

    def bytes_of(self, partition: int) -> int:
        """Return the size of what was written to *partition*, as it is in memory: on disk it is compressed."""
        return self._bytes[partition]

    def read(self, partition: int) -> Iterator[pa.Table]:
        """Yield the versions in *partition*, in the order in which they were added."""
        path = self._path(partition)
        if not path.exists():
            return
        with pa.OSFile(str(path)) as file:
            size = file.size()
            while file.tell() < size:
                with pa.ipc.open_stream(file) as stream:
                    yield stream.read_all()

    def split(self, partition: int) -> Spill | None:
        """Return the versions in *partition* in partitions of their own, None when it was divided often enough."""
        shift = self._shift - _BITS
        if shift < 64 - _MAX_BITS:
            return None
        parts = Spill(self._directory / f"{partition}.parts", buffer_bytes=self._buffer_bytes, shift=shift)
        for versions in self.read(partition):
            parts.add(versions)
        parts.flush()
        self.remove(partition)
        return parts

    def remove(self, partition: int) -> None:
        """Delete the file of *partition*."""
        self._path(partition).unlink(missing_ok=True)
        self._bytes[partition] = 0

    def _path(self, partition: int) -> Path:
        return self._directory / f"{partition}.arrows"

    def _append(self, partition: int, batch: pa.RecordBatch) -> None:
        with self._path(partition).open("ab") as file, pa.ipc.new_stream(file, batch.schema, options=_WRITE) as stream:
            stream.write_batch(batch)
        self._bytes[partition] += batch.nbytes


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default")
