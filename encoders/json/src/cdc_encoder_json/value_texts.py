"""The values of messages in CockroachDB's form. The README of the package lists the differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import polars as pl
import pyarrow as pa
from cdc_column_texts import NULL, Piece, by_unavailable, hlc_pieces, joined, quoted, series

from cdc_core import (
    UNAVAILABLE_MEMBER,
    DeleteForm,
    EncoderContext,
    RowBatch,
    RowPlace,
    TableName,
    TableSchema,
    Timestamp,
    op_texts,
)
from cdc_encoder_json.connect_schema import key_schema, value_schema
from cdc_encoder_json.row_texts import RowTexts


class ValueTexts:
    """Writes the values of messages as the envelope says. The members of each object are in alphabetical order.

    Raises: EncodeError when a value has no JSON text.
    """

    def __init__(self, context: EncoderContext, *, null_as_object: bool) -> None:
        self._context = context
        self._envelope = context.envelope
        self._texts = RowTexts(context.envelope, null_as_object=null_as_object)
        self._ts_ns = ""
        self._schemas: dict[tuple[TableName, str], tuple[TableSchema, str]] = {}

    def key(self, rows: RowBatch) -> list[Piece]:
        """Return the pieces of the keys, as values contain them."""
        return self._texts.key(rows)

    def message_key(self, schema: TableSchema, key: list[Piece]) -> list[Piece]:
        """Return the pieces of the keys of messages. *key* holds those of `key`."""
        if not self._envelope.has_schema:
            return key
        nullable = self._context.key_column is not None
        return _with_schema(key, self._schema(schema, "key", lambda: key_schema(schema, nullable=nullable)))

    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        """Return the pieces of the values; a null is a tombstone. *key* holds the pieces of the keys."""
        self._ts_ns = str(self._context.clock()) if self._envelope.enriched else ""
        if rows.has_unavailable and self._envelope.row is not RowPlace.NOWHERE:
            return [self._by_sets(rows, topic)]
        return self._complete(rows, topic, key)

    def _by_sets(self, rows: RowBatch, topic: str) -> pl.Series:
        """Return the values of rows of which some lack columns: each set of lacking columns by itself."""

        def of_set(part: RowBatch, without: tuple[str, ...]) -> pl.Series:
            key = self._texts.key(part)
            pieces = self._incomplete(part, topic, key, without) if without else self._complete(part, topic, key)
            return joined(pieces, len(part))

        texts, places = by_unavailable(rows, of_set)
        return pl.concat(texts).gather(pl.Series(places))

    def _incomplete(self, rows: RowBatch, topic: str, key: list[Piece], without: tuple[str, ...]) -> list[Piece]:
        """Return the pieces of the values of rows *without* the same columns, none of which is deleted."""
        envelope = self._envelope
        members = [(name, self._metadata(rows, name, topic, key)) for name in envelope.metadata]
        members.append((UNAVAILABLE_MEMBER, [f"[{', '.join(map(quoted, without))}]"]))
        members.sort(key=lambda member: member[0])
        if envelope.row is RowPlace.MESSAGE:
            return self._texts.incomplete(rows, without, metadata=_object(members))
        images = [
            (name, self._texts.incomplete(rows, without) if name == "after" else self._image(rows, name))
            for name in envelope.images
        ]
        return self._described(rows.schema, _object([*images, *members]), unavailable=True)

    def _complete(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        envelope = self._envelope
        metadata = ((name, self._metadata(rows, name, topic, key)) for name in envelope.metadata)
        if envelope.row is RowPlace.MEMBER:
            images = ((name, self._image(rows, name)) for name in envelope.images)
            return self._described(rows.schema, _object([*images, *metadata]), unavailable=False)
        if envelope.row is RowPlace.NOWHERE:
            return _empty(rows.column("after"))
        if envelope.delete is DeleteForm.TOMBSTONE:
            return self._texts.objects(rows, rows.column("after"), absent=None)
        return self._texts.with_deleted(rows, _object(metadata))

    def resolved(self, timestamp: Timestamp) -> str:
        """Return the value of the resolved mark of *timestamp*."""
        return json.dumps(self._envelope.placed({"resolved": str(timestamp)}, dict), separators=(",", ":"))

    def _described(self, schema: TableSchema, value: list[Piece], *, unavailable: bool) -> list[Piece]:
        """Return *value*, beside its schema if the envelope has one."""
        if not self._envelope.has_schema:
            return value
        part = "incomplete value" if unavailable else "value"
        text = self._schema(schema, part, lambda: value_schema(schema, self._envelope, unavailable=unavailable))
        return _with_schema(value, text)

    def _schema(self, schema: TableSchema, part: str, make: Callable[[], str]) -> str:
        """Return the text of the schema of *part*, which is made once for each version of a table."""
        place = (schema.name, part)
        known = self._schemas.get(place)
        if known is None or (known[0] is not schema and known[0] != schema):
            known = self._schemas[place] = (schema, make())
        return known[1]

    def _image(self, rows: RowBatch, name: str) -> list[Piece]:
        images = self._envelope.column(rows, name)
        return [NULL] if images is None else self._texts.objects(rows, images)

    def _metadata(self, rows: RowBatch, name: str, topic: str, key: list[Piece]) -> list[Piece]:
        if name == "key":
            return key
        if name == "topic":
            return [quoted(topic)]
        if name == "ts_ns":
            return [self._ts_ns]
        if name == "op":
            return ['"', series(op_texts(rows)), '"']
        if name == "source":
            return self._source(rows)
        return ['"', *hlc_pieces(self._envelope.column(rows, name)), '"']

    def _source(self, rows: RowBatch) -> list[Piece]:
        """Return the objects that say where rows come from."""
        facts = self._context.source.members(rows.schema).items()
        members: dict[str, list[Piece]] = {name: [json.dumps(fact, ensure_ascii=False)] for name, fact in facts}
        for name in self._envelope.source_times:
            if name == "ts_ns":
                members[name] = [series(rows.column("updated").field("wall")).cast(pl.String)]
            else:
                column = self._envelope.column(rows, "updated" if name == "ts_hlc" else name)
                members[name] = ['"', *hlc_pieces(column), '"']
        return _object(sorted(members.items(), key=lambda member: member[0]))


def _with_schema(payload: list[Piece], schema: str) -> list[Piece]:
    return ['{"payload": ', *payload, f', "schema": {schema}}}']


def _object(members: Iterable[tuple[str, list[Piece]]]) -> list[Piece]:
    pieces: list[Piece] = []
    for name, value in members:
        pieces += [f'{", " if pieces else "{"}"{name}": ', *value]
    return [*pieces, "}"]


def _empty(after: pa.StructArray) -> list[Piece]:
    """Return empty values, null where *after* is null."""
    if after.null_count == 0:
        return [""]
    texts = pl.Series([None, ""], dtype=pl.String)
    return [texts.gather(pl.Series(after.is_valid().cast(pa.uint32())))]
