"""Reads files of lines by column. Files that the encoder did not write exactly so are left to `JsonDecoder.file`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import (
    JSON_NULL_OBJECT,
    NULL,
    Bools,
    Members,
    Spans,
    column_of_texts,
    quoted,
    series,
    timestamps_of_texts,
)

from cdc_core import METADATA_MEMBER, ColumnType, Envelope, Kind, Op, RowBatch, RowPlace, TableSchema

_UNCHANGED = frozenset({Kind.JSON, Kind.ARRAY, Kind.COMPOSITE})
"""Kinds whose JSON text is the value."""
_TEXTS = frozenset({Kind.STRING, Kind.ENUM, Kind.UUID, Kind.TIMETZ, Kind.INTERVAL})
_NULL = NULL.encode()


@dataclass(frozen=True, slots=True)
class _Parts:
    """The places of the parts of all lines."""

    key: list[Spans]
    updated: Spans
    columns: list[Spans]
    """In alphabetical order of their names; without the rows that are deleted."""
    deleted: Bools


def read_lines(schema: TableSchema, envelope: Envelope, body: bytes) -> RowBatch | None:
    """Return the rows of a file of *schema*; None when a line is not exactly as the encoder writes it.

    Raises: ValueError for a value that is not of its column's type.
    """
    if envelope.enriched or not (envelope.key_in_value and envelope.updated):
        return None
    pa.array([body], pa.binary()).cast(pa.string())  # raises when the body is not UTF-8
    members = Members(body)
    names = sorted(column.name for column in schema.columns)
    find = _with_row_as_member if envelope.row is RowPlace.MEMBER else _with_row_as_message
    parts = find(members, envelope, names, len(schema.primary_key))
    if parts is None:
        return None
    types = {column.name: column.type for column in schema.columns}
    columns = {name: _column(members, spans, types[name]) for name, spans in zip(names, parts.columns, strict=True)}
    key = [_column(members, spans, each.type) for each, spans in zip(schema.key_columns, parts.key, strict=True)]
    return RowBatch.of(
        schema,
        op=pa.array(np.where(parts.deleted, np.uint8(Op.DELETE), np.uint8(Op.INSERT))),
        updated=timestamps_of_texts(pc.utf8_trim(members.texts(parts.updated), '"')),
        key=RowBatch.struct(schema.key_type, key),
        after=_structs(schema, [columns[column.name] for column in schema.columns], parts.deleted),
    )


def _with_row_as_member(members: Members, envelope: Envelope, names: list[str], key_columns: int) -> _Parts | None:
    top = [*envelope.images, *envelope.metadata]
    lines = members.lines([quoted(name) for name in top])
    if lines is None:
        return None
    values = dict(zip(top, lines, strict=True))
    images = values["after"]
    deleted = members.say(images, _NULL)
    columns: list[Spans] | None = [images.filter(~deleted)] * len(names)
    if not deleted.all():
        columns = members.objects(images.filter(~deleted), [quoted(name) for name in names])
    key = members.arrays(values["key"], key_columns)
    if columns is None or key is None:
        return None
    return _Parts(key=key, updated=values["updated"], columns=columns, deleted=deleted)


def _with_row_as_message(members: Members, envelope: Envelope, names: list[str], key_columns: int) -> _Parts | None:
    """Return the parts of lines without deleted rows: such a row cannot be told from one of nulls."""
    top = sorted([*names, METADATA_MEMBER])
    lines = members.lines([quoted(name) for name in top])
    if lines is None:
        return None
    columns = dict(zip(top, lines, strict=True))
    outer = columns.pop(METADATA_MEMBER)
    metadata = members.objects(outer, [quoted(name) for name in envelope.metadata])
    if metadata is None:
        return None
    values = dict(zip(envelope.metadata, metadata, strict=True))
    key = members.arrays(values["key"], key_columns, depth=3)
    if key is None:
        return None
    deleted = np.zeros(len(outer.starts), np.bool_)
    return _Parts(key=key, updated=values["updated"], columns=list(columns.values()), deleted=deleted)


def _structs(schema: TableSchema, columns: list[pa.Array], deleted: Bools) -> pa.StructArray:
    if deleted.any():
        places = pa.array(np.where(deleted, 0, np.cumsum(~deleted) - 1), mask=deleted)
        columns = [column.take(places) for column in columns]
    return RowBatch.struct(schema.after_type, columns, pa.array(deleted))


def _column(members: Members, spans: Spans, type_: ColumnType) -> pa.Array:
    null = members.say(spans, _NULL)
    texts = members.texts(spans)
    if null.any():
        texts = pc.if_else(pa.array(null), pa.scalar(None, texts.type), texts)
    if type_.kind in _UNCHANGED:
        if type_.kind is Kind.JSON:
            texts = pc.if_else(pc.equal(texts, JSON_NULL_OBJECT), pa.scalar(NULL, texts.type), texts)
        return texts.cast(pa.string())
    if type_.kind in _TEXTS:
        return _unescaped(texts).cast(pa.string())
    texts = pc.utf8_trim(texts, '"')
    return column_of_texts(pc.utf8_slice_codeunits(texts, 1) if type_.kind is Kind.BYTES else texts, type_)


def _unescaped(texts: pa.Array) -> pa.Array:
    """Return the values of JSON strings."""
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), pa.scalar(value=False))
    plain = pc.utf8_slice_codeunits(texts, 1, -1)
    if not pc.any(escaped, min_count=0).as_py():
        return plain
    read = series(texts.filter(escaped)).str.json_decode(pl.String)
    return pc.replace_with_mask(plain, escaped, read.to_arrow(compat_level=pl.CompatLevel.oldest()))
