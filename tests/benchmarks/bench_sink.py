"""The cloud-storage sink alone: encoded rows into files on disk, synced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
from benchmarks.bench_encode import encoder
from benchmarks.context import Bench
from benchmarks.report import Figure
from benchmarks.rows import BATCH_ROWS, row_batch, sink_context, write_slice
from benchmarks.timing import fastest_s
from cdc_sink_cloudstorage.destination import CloudStorageDestination
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import Encoder, FileBody, MessageBatch, RowBatch, TableSchema, Timestamp


class _Ready(Encoder, FileBody):
    """Gives bytes that were encoded before, whatever the rows."""

    file_extension = ".ndjson"

    def __init__(self, body: pa.Buffer) -> None:
        super().__init__(encoder().context)
        self._body = body

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        pass

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        raise AssertionError("files are written through bodies")

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return str(timestamp).encode()

    def open_body(self, topic: str) -> FileBody:
        return self

    def write(self, rows: RowBatch) -> pa.Buffer:
        return self._body

    def finish(self) -> bytes:
        return b""


def run(bench: Bench) -> Iterator[Figure]:
    batch = row_batch(BATCH_ROWS)
    body = encoder().open_body("orders").write(batch)
    assert isinstance(body, pa.Buffer)
    count = max(1, bench.sizes.part_rows // BATCH_ROWS)
    steps = iter(range(1_000_000))
    for compression in ("none", "zstd"):
        with bench.scratch("sink") as directory:
            options: Any = CloudStorageOptions(compression=compression)
            uri = f"file://{directory.absolute()}"
            context = sink_context(uri, options, _Ready(body), compression=compression)
            CloudStorageDestination(context).prepare()
            with closing(CloudStorageSink(context)) as sink:
                write = partial(write_slice, sink, [batch] * count)
                seconds = fastest_s(lambda write=write: write(step=next(steps)))
        yield Figure(
            name=f"part: cloud-storage sink to file://, compression {compression}",
            value=count * BATCH_ROWS / seconds,
            unit="rows/s",
            details={"bytes_per_s": count * body.size / seconds},
        )
