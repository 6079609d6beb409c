"""Mistakes with files and resolved marks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder, as_bytes
from cdc_core import DecodedRow, EncoderContext, FileBody, RowBatch, TableSchema, Timestamp
from cdc_core.encoder import NewlineBody

__all__ = [
    "CountsMarks",
    "EndsFilesWithALine",
    "FindsMarksAnywhere",
    "ForgetsTheDot",
    "ForgetsTheRest",
    "IsContentWithLess",
    "LosesTheCounter",
    "PoolsBodies",
]


class LosesTheCounter(ReferenceEncoder):
    """Leaves the logical counter out of marks."""

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return super().encode_resolved(topic, Timestamp(timestamp.wall))


class FindsMarksAnywhere(ReferenceEncoder):
    """Comes with a decoder that knows a mark by a word, which a row may have too."""

    class Reader(ReferenceDecoder):
        def resolved(self, value: bytes | None) -> Timestamp | None:
            found = re.search(rb'"resolved":"([0-9.]+)"', value or b"")
            return None if found is None else Timestamp.parse(found[1].decode())


FindsMarksAnywhereReader = FindsMarksAnywhere.Reader


class CountsMarks(ReferenceEncoder):
    """Numbers the marks that it writes, to see gaps."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.marks = 0

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        self.marks += 1
        return as_bytes({**json.loads(super().encode_resolved(topic, timestamp)), "number": self.marks})


class ForgetsTheRest(ReferenceEncoder):
    """Writes at most 256 rows of a batch at a time, and forgets that more may come."""

    class Body(NewlineBody):
        def write(self, rows: RowBatch) -> pa.Buffer:
            return super().write(rows.slice(0, 256))

    def open_body(self, topic: str) -> FileBody:
        return self.Body(self, topic)


class EndsFilesWithALine(ReferenceEncoder):
    """Ends a file with a line end where there is none, also one without any rows."""

    class Body(NewlineBody):
        last = b""

        def write(self, rows: RowBatch) -> pa.Buffer:
            written = super().write(rows)
            self.last = bytes(written)[-1:] or self.last
            return written

        def finish(self) -> bytes:
            return b"" if self.last == b"\n" else b"\n"

    def open_body(self, topic: str) -> FileBody:
        return self.Body(self, topic)


class IsContentWithLess(ReferenceEncoder):
    """Comes with a decoder that takes what stands behind the last line end for a line."""

    class Reader(ReferenceDecoder):
        def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
            return super().file(schema, b"".join(line + b"\n" for line in body.splitlines()))


IsContentWithLessReader = IsContentWithLess.Reader


class PoolsBodies(ReferenceEncoder):
    """Keeps what is not yet final of a file on the encoder, as if there were only one file at a time."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.pending = b""

    class Body(NewlineBody):
        def __init__(self, encoder: PoolsBodies, topic: str) -> None:
            super().__init__(encoder, topic)
            self.pool = encoder

        def write(self, rows: RowBatch) -> bytes:
            self.pool.pending += bytes(super().write(rows))
            return b""

        def finish(self) -> bytes:
            written, self.pool.pending = self.pool.pending, b""
            return written

    def open_body(self, topic: str) -> FileBody:
        return self.Body(self, topic)


class ForgetsTheDot(ReferenceEncoder):
    """Says what kind of file it writes, not how its name ends."""

    file_extension = "lines"
