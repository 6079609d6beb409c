"""Writes many files through a sink and prints by how many bytes the process grew. test_memory.py runs it."""

from __future__ import annotations

import resource
import sys
import time

from cdc_conformance.rows import INT8, Change, rows, table
from cdc_sink_cloudstorage.destination import CloudStorageDestination
from cdc_sink_cloudstorage.options import CloudStorageOptions
from cdc_sink_cloudstorage.sink import CloudStorageSink

from cdc_core import (
    Encoder,
    EncoderContext,
    Envelope,
    FileBody,
    MessageBatch,
    RowBatch,
    SinkContext,
    SliceInfo,
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
    CloudStorageDestination(context).prepare()
    sink = CloudStorageSink(context)
    batches = [rows(table(f"t{number}", {"id": INT8}), [Change({"id": 1})]) for number in range(tables)]
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
