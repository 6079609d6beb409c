"""The Protocol Buffers encoder: whole batches become messages of `changefeed.proto`, or files of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import (
    Ints,
    NoRepresentationError,
    by_unavailable,
    columns_with_keys,
    encode_error,
    hlc_texts,
    valid_rows,
)

from cdc_core import (
    UNAVAILABLE_MEMBER,
    Column,
    DeleteForm,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    OptionError,
    RowBatch,
    RowPlace,
    TableSchema,
    Timestamp,
    joined_values,
)
from cdc_encoder_protobuf.fields import delimited, tag
from cdc_encoder_protobuf.framed import ABSENT, Framed, concatenated
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.values import strings, values

_OWNER = "encoder 'protobuf'"
_ENTRY, _NAME, _VALUE = b"\x0a", b"\x0a", b"\x12"
"""The tags of an entry of a map, which is field 1 of every message that has one, and of the key and value in it."""


class ProtobufEncoder(Encoder):
    """Messages of `changefeed.proto`, or files in which each message stands behind its size.

    The bytes are those of the official library when it serializes deterministically.

    Raises: OptionError for an option that has no place in the envelope.
    """

    file_extension = ".pb"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        context.envelope.check(_OWNER)
        options: ProtobufOptions = context.options
        self._records = _Records(options)

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        if self.context.output == "files" and not self.context.envelope.key_in_value:
            raise OptionError(f"{_OWNER}: files require option 'key_in_value', because a deleted row has only its key")
        for schema, _ in tables:
            self.keyed_schema(schema)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        key = self._records.key(rows)
        found = self._values(rows, topic, key)
        after = rows.column("after")
        if self.context.envelope.delete is DeleteForm.TOMBSTONE and after.null_count:
            found = pc.if_else(after.is_valid(), found, pa.scalar(None, found.type))
        keyed = self.keyed(rows)
        keys = (key if keyed is rows else self._records.key(keyed)).column(len(rows))
        return MessageBatch(topic=topic, key=keys, value=found, updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002 (marks name no topic)
        mark = delimited(tag("Resolved", "resolved"), str(timestamp).encode())
        if self.context.envelope.row is RowPlace.MEMBER:
            message = delimited(tag("Message", "resolved"), mark)
        else:
            message = delimited(tag("Message", "bareResolved"), delimited(tag("BareResolved", "__crdb__"), mark))
        return delimited(b"", message) if self.context.output == "files" else message

    def open_body(self, topic: str) -> FileBody:
        return _MessagesBody(self, topic)

    def delimited_values(self, rows: RowBatch, *, topic: str) -> pa.Buffer:
        """Return the values of all rows, each behind its size."""
        return joined_values(self._values(rows, topic, self._records.key(rows), start=b""))

    def _values(self, rows: RowBatch, topic: str, key: Framed, *, start: bytes | None = None) -> pa.Array:
        """Return the messages of all rows, behind *start* and their sizes unless that is None."""
        if not rows.has_unavailable or self.context.envelope.row is RowPlace.NOWHERE:
            return self._column(rows, topic, key, (), start)
        parts, places = by_unavailable(
            rows, lambda part, without: self._column(part, topic, self._records.key(part), without, start)
        )
        return pa.concat_arrays(parts).take(pa.array(places))

    def _column(
        self, rows: RowBatch, topic: str, key: Framed, without: tuple[str, ...], start: bytes | None
    ) -> pa.Array:
        message = self._message(rows, topic, key, without)
        return (message if start is None else message.message(start)).column(len(rows))

    def _message(self, rows: RowBatch, topic: str, key: Framed, without: Collection[str]) -> Framed:
        """Return the messages of rows which all lack the columns *without*."""
        envelope = self.context.envelope
        if envelope.row is RowPlace.NOWHERE:
            return Framed(0, [])
        if envelope.row is RowPlace.MEMBER:
            images = [self._image(rows, name, without) for name in envelope.images]
            metadata = self._metadata(rows, topic, key, without, "WrappedEnvelope")
            return concatenated([*images, *metadata]).message(tag("Message", "wrapped"))
        parts = [self._records.with_deleted(rows, without=without)]
        if metadata := self._metadata(rows, topic, key, without, "Metadata"):
            parts.append(concatenated(metadata).message(tag("BareEnvelope", "__crdb__")))
        return concatenated(parts).message(tag("Message", "bare"))

    def _image(self, rows: RowBatch, name: str, without: Collection[str]) -> Framed:
        column = self.context.envelope.column(rows, name)
        if column is None:
            return Framed(0, [])
        images = self._records.images(rows, column, without=without if name == "after" else ())
        return images.field(tag("WrappedEnvelope", name))

    def _metadata(self, rows: RowBatch, topic: str, key: Framed, without: Collection[str], owner: str) -> list[Framed]:
        """Return the fields of *owner* that hold metadata, in the order of their numbers."""
        shown = self.context.envelope.metadata
        fields = []
        for name in ("updated", "mvcc_timestamp"):
            if name in shown:
                texts = hlc_texts(self.context.envelope.column(rows, name))
                fields.append(strings(texts).message(tag(owner, name)))
        if "key" in shown:
            fields.append(key.message(tag(owner, "key")))
        if "topic" in shown:
            fields.append(_constant(delimited(tag(owner, "topic"), topic.encode())))
        for column in without:
            fields.append(_constant(delimited(tag(owner, UNAVAILABLE_MEMBER), column.encode())))
        return fields


class _Records:
    """Writes keys and rows. The entries of a map are in the order of the UTF-8 bytes of their names.

    Raises: EncodeError when a value has no representation.
    """

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options

    def key(self, rows: RowBatch) -> Framed:
        """Return the content of the message `Key` of each row."""
        key = rows.column("key")
        return self._entries(rows, rows.schema.key_columns, _fields(key), None)

    def images(self, rows: RowBatch, structs: pa.StructArray, *, without: Collection[str] = ()) -> Framed:
        """Return the content of the message `Record` of *structs*, a column `after` or `before`; absent where null."""
        columns, arrays = rows.schema.columns, _fields(structs)
        present = valid_rows(structs)
        if present is None:
            return self._entries(rows, columns, arrays, None, without=without)
        places = np.flatnonzero(present)
        if len(places) == 0:
            return Framed(ABSENT, [])
        taken = [array.filter(pa.array(present)) for array in arrays]
        records = self._entries(rows, columns, taken, places, without=without).column(len(places))
        spread = records.take(pa.array(np.cumsum(present) - 1, mask=~present))
        return Framed.of(spread.fill_null(b""), absent=np.flatnonzero(~present))

    def with_deleted(self, rows: RowBatch, *, without: Collection[str] = ()) -> Framed:
        """Return the entries of the rows after the change. A deleted row has its key, and nulls elsewhere."""
        return self._entries(rows, rows.schema.columns, columns_with_keys(rows), None, without=without)

    def _entries(
        self,
        rows: RowBatch,
        columns: Sequence[Column],
        arrays: Sequence[pa.Array],
        places: Ints | None,
        *,
        without: Collection[str] = (),
    ) -> Framed:
        """Return one entry for each column. *places* are the rows that *arrays* have, None for all."""
        entries = []
        for column, array in sorted(zip(columns, arrays, strict=True), key=lambda pair: pair[0].name.encode()):
            if column.name in without:
                continue
            try:
                value = values(array, column.type, self._options)
            except NoRepresentationError as error:
                raise encode_error(error, rows, column, format_="Protocol Buffers", places=places) from error
            name = delimited(_NAME, column.name.encode())
            entries.append(value.message(_VALUE).after(name).message(_ENTRY))
        return concatenated(entries)


def _fields(structs: pa.StructArray) -> list[pa.Array]:
    return [structs.field(index) for index in range(structs.type.num_fields)]


class _MessagesBody(FileBody):
    """Messages, each behind its size."""

    def __init__(self, encoder: ProtobufEncoder, topic: str) -> None:
        self._encoder = encoder
        self._topic = topic

    def write(self, rows: RowBatch) -> pa.Buffer:
        return self._encoder.delimited_values(rows, topic=self._topic)


def _constant(data: bytes) -> Framed:
    return Framed(len(data), [data])
