"""Keys and rows as maps of columns: messages `Key`, `Record` and `BareEnvelope`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from cdc_column_texts import Ints, NoRepresentationError, columns_with_keys, encode_error, valid_rows

from cdc_core import Column, RowBatch
from cdc_encoder_protobuf.fields import delimited
from cdc_encoder_protobuf.framed import ABSENT, Framed, concatenated
from cdc_encoder_protobuf.options import ProtobufOptions
from cdc_encoder_protobuf.values import values

__all__ = ["Records"]

_ENTRY, _NAME, _VALUE = b"\x0a", b"\x0a", b"\x12"
"""The tags of an entry of a map, which is field 1 of every message that has one, and of the key and value in it."""


class Records:
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
