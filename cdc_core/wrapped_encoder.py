"""An encoder around another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from cdc_core.encoder import Encoder
from cdc_core.file_body import FileBody
from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp


class WrappedEncoder(Encoder):
    """Does what *encoder* does, and has its attributes. Subclasses override the calls that they change.

    A call that *encoder* makes to itself stays inside of it.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.context)
        self._encoder = encoder
        self.file_extension = encoder.file_extension

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        self._encoder.check(tables)

    def identities(self, tables: Sequence[tuple[TableSchema, str]]) -> Mapping[str, str | None]:
        return self._encoder.identities(tables)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        return self._encoder.encode(rows, topic=topic)

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:
        return self._encoder.encode_resolved(topic, timestamp)

    def keyed(self, rows: RowBatch) -> RowBatch:
        return self._encoder.keyed(rows)

    def keyed_schema(self, schema: TableSchema) -> TableSchema:
        return self._encoder.keyed_schema(schema)

    def open_body(self, topic: str) -> FileBody:
        return self._encoder.open_body(topic)

    def __getattr__(self, name: str) -> Any:
        """Return what only the class of the other encoder has, for a sink that knows this class."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._encoder, name)


class WrappedBody(FileBody):
    """Does what *body* does. Subclasses override the calls that they change."""

    def __init__(self, body: FileBody) -> None:
        self._body = body
        self.held_bytes = body.held_bytes

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        written = self._body.write(rows)
        self.held_bytes = self._body.held_bytes
        return written

    def finish(self) -> bytes | pa.Buffer:
        rest = self._body.finish()
        self.held_bytes = self._body.held_bytes
        return rest
