"""The Protocol Buffers encoder: whole batches become messages of `changefeed.proto`, or files of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import hlc_texts

from cdc_core import (
    UNAVAILABLE_MEMBER,
    DeleteForm,
    EncodeError,
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
    unavailable_sets,
)
from cdc_encoder_protobuf.fields import delimited, tag
from cdc_encoder_protobuf.framed import Framed, concatenated
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.records import Records
from cdc_encoder_protobuf.values import strings

__all__ = ["ProtobufEncoder"]

_OWNER = "encoder 'protobuf'"


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
        self._records = Records(options)

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        if self.context.output == "files" and not self.context.envelope.key_in_value:
            raise OptionError(f"{_OWNER}: files require option 'key_in_value', because a deleted row has only its key")
        for schema, _ in tables:
            self.keyed_schema(schema)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        key = self._records.key(rows)
        values = self._values(rows, topic, key)
        after = rows.column("after")
        if self.context.envelope.delete is DeleteForm.TOMBSTONE and after.null_count:
            values = pc.if_else(after.is_valid(), values, pa.scalar(None, values.type))
        keyed = self.keyed(rows)
        keys = (key if keyed is rows else self._records.key(keyed)).column(len(rows))
        return MessageBatch(topic=topic, key=keys, value=values, updated=rows.column("updated"))

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
        parts, places = [], []
        for without, indices in unavailable_sets(rows):
            part = RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(indices)))
            try:
                parts.append(self._column(part, topic, self._records.key(part), without, start))
            except EncodeError as error:
                raise EncodeError(str(error), row=None if error.row is None else int(indices[error.row])) from error
            places.append(indices)
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))

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


class _MessagesBody(FileBody):
    """Messages, each behind its size."""

    def __init__(self, encoder: ProtobufEncoder, topic: str) -> None:
        self._encoder = encoder
        self._topic = topic

    def write(self, rows: RowBatch) -> pa.Buffer:
        return self._encoder.delimited_values(rows, topic=self._topic)


def _constant(data: bytes) -> Framed:
    return Framed(len(data), [data])
