"""Mistakes with files and resolved marks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceDecoder, ReferenceEncoder, as_bytes
from cdc_conformance.sabotage.broken_encoders.bodies import WithOwnBody
from cdc_core import DecodedRow, EncoderContext, FileBody, NewlineBody, RowBatch, TableSchema, Timestamp

__all__ = [
    "AcceptsTruncatedFiles",
    "DropsRowsAfter256",
    "DropsTheLogicalCounter",
    "EndsFilesWithANewline",
    "FindsMarksInRows",
    "NumbersMarks",
    "OmitsTheDot",
    "SharesOneBuffer",
]


class DropsTheLogicalCounter(ReferenceEncoder):
    """Writes marks without their logical counter."""

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return super().encode_resolved(topic, Timestamp(timestamp.wall))


class FindsMarksInRows(ReferenceEncoder):
    """Has a decoder that recognises a mark by a word that rows may contain."""

    class Reader(ReferenceDecoder):
        def resolved(self, value: bytes | None) -> Timestamp | None:
            found = re.search(rb'"resolved":"([0-9.]+)"', value or b"")
            return None if found is None else Timestamp.parse(found[1].decode())


FindsMarksInRowsReader = FindsMarksInRows.Reader


class NumbersMarks(ReferenceEncoder):
    """Numbers the marks that it writes."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.marks = 0

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        self.marks += 1
        return as_bytes({**json.loads(super().encode_resolved(topic, timestamp)), "number": self.marks})


class DropsRowsAfter256(WithOwnBody):
    """Writes only the first 256 rows of a batch."""

    class Body(NewlineBody):
        def write(self, rows: RowBatch) -> pa.Buffer:
            return super().write(rows.slice(0, 256))


class EndsFilesWithANewline(WithOwnBody):
    """Ends every file with a newline, even a file without rows."""

    class Body(NewlineBody):
        last = b""

        def write(self, rows: RowBatch) -> pa.Buffer:
            written = super().write(rows)
            self.last = bytes(written)[-1:] or self.last
            return written

        def finish(self) -> bytes:
            return b"" if self.last == b"\n" else b"\n"


class AcceptsTruncatedFiles(ReferenceEncoder):
    """Has a decoder that reads text after the last newline as a line."""

    class Reader(ReferenceDecoder):
        def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
            return super().file(schema, b"".join(line + b"\n" for line in body.splitlines()))


AcceptsTruncatedFilesReader = AcceptsTruncatedFiles.Reader


class SharesOneBuffer(ReferenceEncoder):
    """Buffers the pending bytes of all files together."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self.pending = b""

    class Body(NewlineBody):
        def __init__(self, encoder: SharesOneBuffer, topic: str) -> None:
            super().__init__(lambda rows: encoder.encode(rows, topic=topic).value)
            self.pool = encoder

        def write(self, rows: RowBatch) -> bytes:
            self.pool.pending += bytes(super().write(rows))
            return b""

        def finish(self) -> bytes:
            written, self.pool.pending = self.pool.pending, b""
            return written

    def open_body(self, topic: str) -> FileBody:
        return self.Body(self, topic)


class OmitsTheDot(ReferenceEncoder):
    """Has a file extension without a dot."""

    file_extension = "lines"
