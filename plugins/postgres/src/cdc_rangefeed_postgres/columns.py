"""Readers for the columns of one table version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from cdc_core import START_OVER, ColumnType, Kind, TableName, TerminalRangefeedError
from cdc_rangefeed_postgres.binary import decode_binary
from cdc_rangefeed_postgres.datetimes import OutOfRangeError
from cdc_rangefeed_postgres.fields import Fields
from cdc_rangefeed_postgres.nested import UnknownAttributesError, json_texts
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.text import decode_text
from cdc_rangefeed_postgres.types import GONE, PgColumn, TableVersion, TypeCatalog


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads the values of one column into its Arrow type. Raises: TerminalRangefeedError that names the column."""

    table: TableName
    column: PgColumn
    type_: ColumnType
    types: TypeCatalog
    base_oid: int

    def from_fields(self, fields: Fields) -> pa.Array:
        """Return the values of fields of the log, in binary or text form."""
        if fields.binary:
            return self.guarded(lambda: decode_binary(fields, self.type_, self.base_oid))
        return self.guarded(lambda: self._from_texts(fields.texts()))

    def from_texts(self, texts: pa.StringArray) -> pa.Array:
        """Return the values of text forms."""
        return self.guarded(lambda: self._from_texts(texts))

    def guarded(self, read: Callable[[], pa.Array]) -> pa.Array:
        """Return the result of *read*, with errors that name the column."""
        try:
            return read()
        except OutOfRangeError as err:
            raise TerminalRangefeedError(
                f"table {self.table}, column {self.column.name!r}: changefeeds do not support {err}. Change the value."
                f" {START_OVER}"
            ) from err
        except UnknownAttributesError as err:
            raise TerminalRangefeedError(
                f"table {self.table}, column {self.column.name!r}: type {err} lost and gained attributes while rows"
                f" were written, and the log does not show which attributes a row has. {READ_ANEW}"
            ) from err

    def _from_texts(self, texts: pa.StringArray) -> pa.Array:
        gone = self.types[self.column.oid]
        if gone.typtype == GONE and len(texts) > texts.null_count:
            raise TerminalRangefeedError(
                f"table {self.table}, column {self.column.name!r}: its values in the log have the type {gone.name}, "
                f"or a domain over it, which was dropped before the changefeed read it. {READ_ANEW}"
            )
        if self.type_.kind in (Kind.ARRAY, Kind.COMPOSITE):
            return json_texts(texts, self.column.oid, self.types)
        return decode_text(texts, self.type_)


def column_readers(version: TableVersion) -> tuple[ColumnReader, ...]:
    """Return a reader for each column of *version*, in order."""
    return tuple(
        ColumnReader(
            version.schema.name,
            column,
            version.schema.columns[index].type,
            version.types,
            version.types.base(column.oid)[0].oid,
        )
        for index, column in enumerate(version.columns)
    )
