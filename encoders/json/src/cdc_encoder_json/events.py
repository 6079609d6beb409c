"""CloudEvents: the attributes of rows, and events as JSON objects. No attribute changes when a row is repeated."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from cdc_column_texts import Piece, hlc_pieces, joined, quoted, quoted_column, series, timestamp_pieces

from cdc_core import Attributes, CloudEvents, RowBatch, Timestamp

_LONG_KEY = 128
"""Bytes of a key, as JSON, beyond which the id has its hash instead."""
_DATA_TYPE = "application/json"
_VERSION = "1.0"


@dataclass(frozen=True, slots=True)
class EventTexts:
    """Writes the attributes of events and whole events. The id is made of what identifies a version of a row.

    That is the commit timestamp, what happened, and the key. The table is in the source, with which an id is unique.
    """

    events: CloudEvents

    @property
    def binary(self) -> bool:
        """Whether messages hold the data, and attributes are separate."""
        return self.events.binary

    def structured(
        self, rows: RowBatch, data: list[Piece], *, key: pl.Series, message_key: pl.Series, schema: str | None
    ) -> list[Piece]:
        """Return the pieces of the events of *rows*, of which *data* are the pieces of the data.

        *key* are the keys as JSON, *message_key* those of the messages, and *schema* is the URL of the data's schema.
        """
        id_, time, types = self._pieces(rows, quoted_column(_arrow(_short(key)))[1:-1])
        subject = quoted_column(_arrow(key))
        return [
            '{"data": ',
            *data,
            f', "datacontenttype": "{_DATA_TYPE}", ',
            "" if schema is None else f'"dataschema": {quoted(schema)}, ',
            '"id": "',
            *id_,
            '", "partitionkey": ',
            *(subject if message_key is key else quoted_column(_arrow(message_key))),
            f', "source": {quoted(self.events.source_of(rows.schema.name))}, "specversion": "{_VERSION}", "subject": ',
            *subject,
            ', "time": "',
            *time,
            '", "type": ',
            *quoted_column(types),
            "}",
        ]

    def attributes(self, rows: RowBatch, *, key: pl.Series, message_key: pl.Series, schema: str | None) -> Attributes:
        """Return the attributes of *rows*, as `MessageBatch.attributes` has them; *key* and others as above."""
        id_, time, types = self._pieces(rows, [_short(key)])
        return {
            "datacontenttype": _DATA_TYPE,
            **({} if schema is None else {"dataschema": schema}),
            "id": _arrow(joined(id_, len(rows))),
            "partitionkey": _arrow(message_key),
            "source": self.events.source_of(rows.schema.name),
            "specversion": _VERSION,
            "subject": _arrow(key),
            "time": _arrow(joined(time, len(rows))),
            "type": types,
        }

    def resolved(self, timestamp: Timestamp, data: str) -> str:
        """Return the event of a resolved mark, of which *data* is the data."""
        attributes = json.dumps(self.events.resolved(timestamp), separators=(",", ":"))
        return f'{{"data":{data},{attributes[1:]}'

    def _pieces(self, rows: RowBatch, key: list[Piece]) -> tuple[list[Piece], list[Piece], pa.Array]:
        """Return the pieces of `id` with *key* in it, those of `time`, and the column `type`."""
        ops, types = self.events.types_of(rows)
        updated = rows.column("updated")
        us = pa.array(updated.field("wall").to_numpy() // 1000).cast(pa.timestamp("us"))
        return [*hlc_pieces(updated), ":", series(ops), ":", *key], timestamp_pieces(us, zone="Z", quote=""), types


def _short(key: pl.Series) -> pl.Series:
    """Return the texts in *key*, with a hash in place of each that is long."""
    long = key.str.len_bytes() > _LONG_KEY
    if not long.any():
        return key
    hashes = [f"sha256-{hashlib.sha256(text.encode()).hexdigest()}" for text in key.filter(long)]
    return key.clone().scatter(long.arg_true(), hashes)


def _arrow(texts: pl.Series) -> pa.StringArray:
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
