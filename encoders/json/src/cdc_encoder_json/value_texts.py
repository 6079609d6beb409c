"""The values of messages in CockroachDB's form. The README of the package lists the differences."""

from __future__ import annotations

import json
from collections.abc import Iterable

import polars as pl
import pyarrow as pa
from cdc_column_texts import NULL, Piece, hlc_pieces, quoted

from cdc_core import DeleteForm, Envelope, RowBatch, RowPlace, Timestamp
from cdc_encoder_json.row_texts import RowTexts

__all__ = ["ValueTexts"]


class ValueTexts:
    """Writes the values of messages as *envelope* says. The members of each object are in alphabetical order.

    Raises: EncodeError when a value has no JSON text.
    """

    def __init__(self, envelope: Envelope, *, null_as_object: bool) -> None:
        self._envelope = envelope
        metadata_in_row = envelope.row is RowPlace.MESSAGE and bool(envelope.metadata)
        self._texts = RowTexts(null_as_object=null_as_object, metadata=metadata_in_row)

    def key(self, rows: RowBatch) -> list[Piece]:
        """Return the pieces of the keys."""
        return self._texts.key(rows)

    def value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        """Return the pieces of the values; a null is a tombstone. *key* holds the pieces of the keys."""
        envelope = self._envelope
        metadata = ((name, self._metadata(rows, name, topic, key)) for name in envelope.metadata)
        if envelope.row is RowPlace.MEMBER:
            return _object([*((name, self._image(rows, name)) for name in envelope.images), *metadata])
        if envelope.row is RowPlace.NOWHERE:
            return _empty(rows.column("after"))
        if envelope.delete is DeleteForm.TOMBSTONE:
            return self._texts.objects(rows, rows.column("after"), absent=None)
        return self._texts.with_deleted(rows, _object(metadata))

    def resolved(self, timestamp: Timestamp) -> str:
        """Return the value of the resolved mark of *timestamp*."""
        return json.dumps(self._envelope.placed({"resolved": str(timestamp)}, dict), separators=(",", ":"))

    def _image(self, rows: RowBatch, name: str) -> list[Piece]:
        images = self._envelope.column(rows, name)
        return [NULL] if images is None else self._texts.objects(rows, images)

    def _metadata(self, rows: RowBatch, name: str, topic: str, key: list[Piece]) -> list[Piece]:
        if name == "key":
            return key
        if name == "topic":
            return [quoted(topic)]
        return ['"', *hlc_pieces(self._envelope.column(rows, name)), '"']


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
