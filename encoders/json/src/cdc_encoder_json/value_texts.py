"""Envelopes: what a message's value is made of, beside the row. Byte for byte as CockroachDB writes them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts.escape import quoted
from cdc_column_texts.moments import hlc_pieces
from cdc_column_texts.pieces import NULL, Piece

from cdc_core import ContractError, EnvelopeOptions, Op, OptionError, RowBatch, Timestamp
from cdc_encoder_json.objects import METADATA, RowTexts

__all__ = ["ENVELOPES", "Envelope", "envelope_of"]

_OPS_WITHOUT_BEFORE = pa.array([Op.INSERT, Op.SCAN], pa.uint8())


class Envelope(ABC):
    """One shape of values. Keys of objects stand in alphabetical order."""

    places: frozenset[str]
    """The envelope options that this shape has a place for."""

    def __init__(self, options: EnvelopeOptions, *, null_as_object: bool) -> None:
        self.options = options
        self.texts = RowTexts(null_as_object=null_as_object, metadata=self._has_metadata())

    @abstractmethod
    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        """Return the pieces of the values; a null is a tombstone. *key* are those of the keys."""

    def resolved(self, timestamp: Timestamp) -> str:
        """Return the value that says that *timestamp* is resolved."""
        return f'{{"{METADATA}":{{"resolved":"{timestamp}"}}}}'

    def _has_metadata(self) -> bool:
        return False


class WrappedEnvelope(Envelope):
    """`{"after": …}`, with `before` and metadata beside it."""

    places = frozenset({"diff", "key_in_value", "mvcc_timestamp", "topic_in_value", "updated"})

    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        pieces: list[Piece] = ['{"after": ', *self.texts.objects(rows, "after")]
        if self.options.diff:
            pieces += [', "before": ', *self._before(rows)]
        for name, value in _metadata(self.options, rows, topic, key):
            pieces += [f', "{name}": ', *value]
        return [*pieces, "}"]

    def resolved(self, timestamp: Timestamp) -> str:
        return f'{{"resolved":"{timestamp}"}}'

    def _before(self, rows: RowBatch) -> list[Piece]:
        if rows.has_before:
            return self.texts.objects(rows, "before")
        if not pc.all(pc.is_in(rows.column("op"), _OPS_WITHOUT_BEFORE)).as_py():
            raise ContractError(
                f"the source gave updates or deletes of table {rows.schema.name} without the column 'before', "
                "which the option 'diff' asks of it"
            )
        return [NULL]


class BareEnvelope(Envelope):
    """The row itself, metadata under `__crdb__` among its columns; a deleted row is its key and nulls."""

    places = frozenset({"key_in_value", "mvcc_timestamp", "topic_in_value", "updated"})

    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        metadata: list[Piece] = []
        for name, value in _metadata(self.options, rows, topic, key):
            metadata += [f'{", " if metadata else "{"}"{name}": ', *value]
        return self.texts.with_deleted(rows, [*metadata, "}"])

    def _has_metadata(self) -> bool:
        return any(getattr(self.options, name) for name in self.places)


class RowEnvelope(Envelope):
    """The row itself; a deleted row is a tombstone."""

    places = frozenset()

    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:  # noqa: ARG002 (one contract)
        return self.texts.objects(rows, "after", absent=None)


class KeyOnlyEnvelope(Envelope):
    """Nothing, since the key says all; a deleted row is a tombstone."""

    places = frozenset()

    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:  # noqa: ARG002 (one contract)
        after = rows.column("after")
        if after.null_count == 0:
            return [""]
        texts = pl.Series([None, ""], dtype=pl.String)
        return [texts.gather(pl.Series(after.is_valid().cast(pa.uint32())))]


ENVELOPES: dict[str, type[Envelope]] = {
    "wrapped": WrappedEnvelope,
    "bare": BareEnvelope,
    "row": RowEnvelope,
    "key_only": KeyOnlyEnvelope,
}


def envelope_of(options: EnvelopeOptions, *, null_as_object: bool) -> Envelope:
    """Return the envelope of these options. Raises: OptionError for one that it has no place for."""
    cls = ENVELOPES[options.envelope]
    for name in sorted(WrappedEnvelope.places - cls.places):
        if getattr(options, name):
            fit = [known for known, other in ENVELOPES.items() if name in other.places]
            raise OptionError(
                f"encoder 'json': envelope '{options.envelope}' has no place for '{name}'; "
                f"use {' or '.join(repr(known) for known in fit)}"
            )
    return cls(options, null_as_object=null_as_object)


def _metadata(options: EnvelopeOptions, rows: RowBatch, topic: str, key: list[Piece]) -> list[tuple[str, list[Piece]]]:
    """Return what *options* ask for beside the row, by name, in alphabetical order."""
    found: list[tuple[str, list[Piece]]] = []
    if options.key_in_value:
        found.append(("key", key))
    if options.mvcc_timestamp:
        found.append(("mvcc_timestamp", ['"', *hlc_pieces(_mvcc(rows)), '"']))
    if options.topic_in_value:
        found.append(("topic", [quoted(topic)]))
    if options.updated:
        found.append(("updated", ['"', *hlc_pieces(rows.column("updated")), '"']))
    return found


def _mvcc(rows: RowBatch) -> pa.StructArray:
    """Return when each row version was committed: where the source does not know it, when it was emitted."""
    updated = rows.column("updated")
    if "mvcc" not in rows.batch.schema.names:
        return updated
    mvcc = rows.column("mvcc")
    return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)
