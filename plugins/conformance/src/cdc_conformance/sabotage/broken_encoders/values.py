"""Mistakes with values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import Column, EncodeError, Kind, RowBatch

__all__ = [
    "ConvertsIntegersToDoubles",
    "LowercasesColumnNames",
    "MergesNulls",
    "OmitsTheKeyOfErrors",
    "ReformatsJson",
    "TrimsTexts",
    "TruncatesBytesAtZero",
    "WrapsMidnight",
    "WritesLabelsInAscii",
    "WritesNullAsNaN",
    "WritesNullForUnknownValues",
]


class _ChangesImages(ReferenceEncoder):
    """Changes the values of rows, but not of keys."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        if image is None:
            return None
        return {column.name: self.changed(column.type.kind, image[column.name]) for column in rows.schema.columns}

    def changed(self, kind: Kind, value: Any) -> Any:
        """Return the value that is written instead of *value*."""
        raise AssertionError(kind, value)


class ConvertsIntegersToDoubles(_ChangesImages):
    """Converts integers to doubles, like JavaScript and many JSON parsers."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return int(float(value)) if kind is Kind.INT and value is not None else value


class TrimsTexts(_ChangesImages):
    """Removes blanks at both ends of texts."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return value.strip() if kind is Kind.STRING and value is not None else value


class TruncatesBytesAtZero(_ChangesImages):
    """Truncates bytes at the first zero, like a C string."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return bytes.fromhex(value).partition(b"\0")[0].hex() if kind is Kind.BYTES and value is not None else value


class WrapsMidnight(_ChangesImages):
    """Writes 24:00:00 as 00:00:00, like Python's `time`."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return value % 86_400_000_000 if kind is Kind.TIME and value is not None else value


class WritesLabelsInAscii(_ChangesImages):
    """Replaces characters in enum labels that are not ASCII."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return value.encode("ascii", "replace").decode() if kind is Kind.ENUM and value is not None else value


class ReformatsJson(_ChangesImages):
    """Parses and reformats JSON with numbers as doubles."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return json.dumps(json.loads(value, parse_int=float)) if kind is Kind.JSON and value is not None else value


class WritesNullAsNaN(_ChangesImages):
    """Writes nulls of floats as NaN, like pandas."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return "nan" if kind is Kind.FLOAT and value is None else value


class WritesNullForUnknownValues(ReferenceEncoder):
    """Does not look at the column `unavailable`."""

    def lacking(self, rows: RowBatch, index: int) -> list[str]:  # noqa: ARG002
        return []


class MergesNulls(_ChangesImages):
    """Writes a JSON null as an SQL NULL."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return None if kind is Kind.JSON and value == "null" else value


class OmitsTheKeyOfErrors(ReferenceEncoder):
    """Raises EncodeError without the key of the row."""

    def cell(self, rows: RowBatch, index: int, column: Column, scalar: pa.Scalar) -> Any:
        try:
            return super().cell(rows, index, column, scalar)
        except EncodeError as error:
            raise EncodeError(f"a value of column {column.name} of table {rows.schema.name} is not a number") from error


class LowercasesColumnNames(ReferenceEncoder):
    """Converts column names to lower case, like unquoted SQL."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        return None if image is None else {column.lower(): value for column, value in image.items()}
