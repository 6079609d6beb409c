"""The cloud-storage sink alone: encoded rows into files on disk, synced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from benchmarks.bench_encode import encoder
from benchmarks.context import Bench
from benchmarks.report import Figure
from benchmarks.rows import SCHEMA, row_batch
from benchmarks.timing import fastest_s
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import Encoder, FileBody, MessageBatch, RowBatch, SinkContext, SliceInfo, TableSchema, Timestamp

_BATCH_ROWS = 16_384


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
    batch = row_batch(_BATCH_ROWS)
    body = encoder().open_body("orders").write(batch)
    assert isinstance(body, pa.Buffer)
    count = max(1, bench.sizes.part_rows // _BATCH_ROWS)
    steps = iter(range(1_000_000))
    for compression in ("none", "zstd"):
        with bench.scratch("sink") as directory:
            options: Any = CloudStorageOptions(compression=compression)
            sink = CloudStorageSink(
                SinkContext(
                    changefeed="bench",
                    epoch=1,
                    uri=f"file://{directory.absolute()}",
                    options=options,
                    encoder=_Ready(body),
                    tables=(SCHEMA.name,),
                    compression=compression,
                )
            )

            def write_slice(sink: CloudStorageSink = sink) -> None:
                sink.begin(SliceInfo(step=next(steps), index=0, lower=batch.latest()))
                for _ in range(count):
                    sink.emit(batch)
                sink.flush()

            seconds = fastest_s(write_slice)
            sink.close()
        yield Figure(
            name=f"part: cloud-storage sink to file://, compression {compression}",
            value=count * _BATCH_ROWS / seconds,
            unit="rows/s",
            details={"bytes_per_s": count * body.size / seconds},
        )
