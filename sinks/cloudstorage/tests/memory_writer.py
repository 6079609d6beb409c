"""Writes many files through a sink and prints by how many bytes the process grew. test_memory.py runs it."""

from __future__ import annotations

import resource
import sys
import time

import pyarrow as pa
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import (
    Column,
    ColumnType,
    Encoder,
    EncoderContext,
    Envelope,
    FileBody,
    Kind,
    MessageBatch,
    Op,
    RowBatch,
    SinkContext,
    SliceInfo,
    TableName,
    TableSchema,
    Timestamp,
    parse_options,
)

PIECE_BYTES = 1024 * 1024
LINE = b'{"after": {"id": 1000001, "name": "a text of some length", "price": 12.5}, "key": [1000001]}\n'


class FreshBuffers(FileBody):
    """Returns a new buffer for every batch, as an encoder does."""

    def write(self, rows: RowBatch) -> bytes:
        return LINE * (PIECE_BYTES // len(LINE))

    def finish(self) -> bytes:
        return b""


class BufferEncoder(Encoder):
    file_extension = ".lines"

    def open_body(self, topic: str) -> FileBody:
        return FreshBuffers()

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        raise AssertionError("the sink writes files with open_body")

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return b""


def one_row(table: str) -> RowBatch:
    column = Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64))
    shape = TableSchema(name=TableName("d", "s", table), version=1, columns=(column,), primary_key=("id",))
    ids = pa.array([1], pa.int64())
    return RowBatch.of(
        shape,
        op=pa.array([Op.INSERT], pa.uint8()),
        updated=RowBatch.timestamps(ids, pa.array([0], pa.int32())),
        key=RowBatch.struct(shape.key_type, [ids]),
        after=RowBatch.struct(shape.after_type, [ids]),
    )


def main(root: str, compression: str, megabytes: int, tables: int) -> None:
    encoder = BufferEncoder(EncoderContext(changefeed="feed", envelope=Envelope(), options=None))
    options = parse_options(CloudStorageOptions, {"compression": compression}, owner="sink")
    context = SinkContext(
        changefeed="feed",
        epoch=1,
        uri=f"file://{root}",
        options=options,
        encoder=encoder,
        compression=compression,
    )
    sink = CloudStorageSink(context)
    batches = [one_row(f"t{number}") for number in range(tables)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sink.begin(SliceInfo(step=0, index=0, lower=Timestamp(1)))
    started = time.perf_counter()
    for number in range(megabytes):
        sink.emit(batches[number % tables])
    flushed = sink.flush()
    seconds = time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert flushed.messages == megabytes
    sys.stdout.write(f"{grown} {megabytes / seconds:.0f}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
