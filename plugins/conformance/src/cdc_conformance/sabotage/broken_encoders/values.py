"""Mistakes with single values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from cdc_conformance.reference.encoder import ReferenceEncoder
from cdc_core import Column, EncodeError, Kind, RowBatch

__all__ = [
    "EndsBytesAtZero",
    "FoldsColumnNames",
    "HidesTheKeyOfErrors",
    "MixesUpNulls",
    "ParsesJson",
    "PassesIntegersThroughDoubles",
    "SpeaksAscii",
    "TakesNaNForNull",
    "TrimsTexts",
    "WrapsMidnight",
]


class _ChangesImages(ReferenceEncoder):
    """Changes values of rows, not of keys."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        if image is None:
            return None
        return {column.name: self.changed(column.type.kind, image[column.name]) for column in rows.schema.columns}

    def changed(self, kind: Kind, value: Any) -> Any:
        """Return what is written in place of *value*."""
        raise AssertionError(kind, value)


class PassesIntegersThroughDoubles(_ChangesImages):
    """Has a library on the way that knows no integers, as JavaScript and many JSON parsers."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return int(float(value)) if kind is Kind.INT and value is not None else value


class TrimsTexts(_ChangesImages):
    """Cuts blanks off both ends of texts, to be tidy."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return value.strip() if kind is Kind.STRING and value is not None else value


class EndsBytesAtZero(_ChangesImages):
    """Hands bytes to a C library that takes them for a text and stops at the first zero."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return bytes.fromhex(value).partition(b"\0")[0].hex() if kind is Kind.BYTES and value is not None else value


class WrapsMidnight(_ChangesImages):
    """Makes 00:00:00 of 24:00:00, as Python's `time` does."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return value % 86_400_000_000 if kind is Kind.TIME and value is not None else value


class SpeaksAscii(_ChangesImages):
    """Takes labels of enums for names, which in the format are ASCII."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return value.encode("ascii", "replace").decode() if kind is Kind.ENUM and value is not None else value


class ParsesJson(_ChangesImages):
    """Reads JSON and writes it anew, its numbers through doubles."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return json.dumps(json.loads(value, parse_int=float)) if kind is Kind.JSON and value is not None else value


class TakesNaNForNull(_ChangesImages):
    """Has columns of floats in pandas, where a null is NaN."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return "nan" if kind is Kind.FLOAT and value is None else value


class MixesUpNulls(_ChangesImages):
    """Reads the JSON value null, which is Python's None, as Python's None is written: as an SQL NULL."""

    def changed(self, kind: Kind, value: Any) -> Any:
        return None if kind is Kind.JSON and value == "null" else value


class HidesTheKeyOfErrors(ReferenceEncoder):
    """Says what is wrong with a value, and of which column, but not in which row."""

    def cell(self, rows: RowBatch, index: int, column: Column, scalar: pa.Scalar) -> Any:
        try:
            return super().cell(rows, index, column, scalar)
        except EncodeError as error:
            raise EncodeError(f"a value of column {column.name} of table {rows.schema.name} is no number") from error


class FoldsColumnNames(ReferenceEncoder):
    """Writes names of columns in small letters, as SQL does where nobody quotes them."""

    def image(self, rows: RowBatch, index: int, name: str) -> dict[str, Any] | None:
        image = super().image(rows, index, name)
        return None if image is None else {column.lower(): value for column, value in image.items()}
