"""Reads the encoder's own files whole columns at a time; what is not just as it writes it, it leaves to others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts.escape import quoted
from cdc_column_texts.json_values import JSON_NULL_OBJECT
from cdc_column_texts.members import Members, Spans
from cdc_column_texts.pieces import NULL, series
from cdc_column_texts.reading import column_of_texts, timestamps_of_texts
from cdc_column_texts.values import Bools

from cdc_core import ColumnType, EnvelopeOptions, Kind, Op, RowBatch, TableSchema
from cdc_encoder_json.objects import METADATA

__all__ = ["read_lines"]

_AS_THEY_ARE = frozenset({Kind.JSON, Kind.ARRAY, Kind.COMPOSITE})
_TEXTS = frozenset({Kind.STRING, Kind.ENUM, Kind.UUID, Kind.TIMETZ, Kind.INTERVAL})
_NULL = NULL.encode()


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where the parts of all lines are."""

    key: list[Spans]
    updated: Spans
    columns: list[Spans]
    """By name, in alphabetical order; of the rows that are not deleted."""
    deleted: Bools


def read_lines(schema: TableSchema, envelope: EnvelopeOptions, body: bytes) -> RowBatch | None:
    """Return the rows of a file of *schema*; None when a line is not exactly as the encoder writes it.

    Raises: ValueError for a value that is not of its column's type.
    """
    if not (envelope.key_in_value and envelope.updated):
        return None
    pa.array([body], pa.binary()).cast(pa.string())  # raises when it is no text
    members = Members(body)
    names = sorted(column.name for column in schema.columns)
    find = _wrapped if envelope.envelope == "wrapped" else _bare
    parts = find(members, envelope, names, len(schema.primary_key))
    if parts is None:
        return None
    types = {column.name: column.type for column in schema.columns}
    columns = {name: _column(members, spans, types[name]) for name, spans in zip(names, parts.columns, strict=True)}
    key = [_column(members, spans, types[name]) for name, spans in zip(schema.primary_key, parts.key, strict=True)]
    return RowBatch.of(
        schema,
        op=pa.array(np.where(parts.deleted, np.uint8(Op.DELETE), np.uint8(Op.INSERT))),
        updated=timestamps_of_texts(pc.utf8_trim(members.texts(parts.updated), '"')),
        key=RowBatch.struct(schema.key_type, key),
        after=_structs(schema, [columns[column.name] for column in schema.columns], parts.deleted),
    )


def _wrapped(members: Members, envelope: EnvelopeOptions, names: list[str], key_columns: int) -> _Parts | None:
    top = ["after", *(["before"] if envelope.diff else []), *_metadata(envelope)]
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


def _bare(members: Members, envelope: EnvelopeOptions, names: list[str], key_columns: int) -> _Parts | None:
    """A deleted row is its key and nulls here."""
    top = sorted([*names, METADATA])
    lines = members.lines([quoted(name) for name in top])
    if lines is None:
        return None
    columns = dict(zip(top, lines, strict=True))
    outer = columns.pop(METADATA)
    metadata = members.objects(outer, [quoted(name) for name in _metadata(envelope)])
    if metadata is None:
        return None
    values = dict(zip(_metadata(envelope), metadata, strict=True))
    key = members.arrays(values["key"], key_columns, depth=3)
    if key is None:
        return None
    nothing = np.zeros(len(outer.starts), np.bool_)
    return _Parts(key=key, updated=values["updated"], columns=list(columns.values()), deleted=nothing)


def _metadata(envelope: EnvelopeOptions) -> list[str]:
    options = {
        "key": "key_in_value",
        "mvcc_timestamp": "mvcc_timestamp",
        "topic": "topic_in_value",
        "updated": "updated",
    }
    return [name for name, option in options.items() if getattr(envelope, option)]


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
    if type_.kind in _AS_THEY_ARE:
        if type_.kind is Kind.JSON:
            texts = pc.if_else(pc.equal(texts, JSON_NULL_OBJECT), pa.scalar(NULL, texts.type), texts)
        return texts.cast(pa.string())
    if type_.kind in _TEXTS:
        return _unescaped(texts).cast(pa.string())
    texts = pc.utf8_trim(texts, '"')
    return column_of_texts(pc.utf8_slice_codeunits(texts, 1) if type_.kind is Kind.BYTES else texts, type_)


def _unescaped(texts: pa.Array) -> pa.Array:
    """Return what JSON strings say."""
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), pa.scalar(value=False))
    plain = pc.utf8_slice_codeunits(texts, 1, -1)
    if not pc.any(escaped, min_count=0).as_py():
        return plain
    read = series(texts.filter(escaped)).str.json_decode(pl.String)
    return pc.replace_with_mask(plain, escaped, read.to_arrow(compat_level=pl.CompatLevel.oldest()))
