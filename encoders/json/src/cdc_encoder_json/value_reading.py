"""Reads one JSON text as the value of a column, by the kind of the column."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from cdc_column_texts import JSON_NULL_OBJECT, NULL

from cdc_core import ColumnType, Kind, plain_value
from cdc_encoder_json.scanning import plain, string

__all__ = ["read_value"]

_BOOLS = {"true": True, "false": False}


def read_value(text: str, type_: ColumnType) -> Any:
    """Return the value of one column. A text of another kind, from another version of the table, is read as plain JSON.

    Raises: ValueError when it is not JSON.
    """
    if text == NULL:
        return None
    try:
        return _READERS.get(type_.kind, _string)(text, type_)
    except (ValueError, KeyError, OverflowError):
        return plain(text)


def _string(text: str, _: ColumnType) -> str:
    return string(text)


def _int(text: str, _: ColumnType) -> int:
    return int(text)


def _float(text: str, type_: ColumnType) -> float:
    number = float(string(text) if text.startswith('"') else text)
    return float(struct.unpack("f", struct.pack("f", number))[0]) if type_.bits == 32 else number


def _decimal(text: str, _: ColumnType) -> str:
    if not text.startswith('"'):
        float(text)
        return text
    return string(text)


def _bytes(text: str, _: ColumnType) -> bytes:
    digits = string(text)
    if not digits.startswith("\\x"):
        raise ValueError(f"not bytes: {text!r}")
    return bytes.fromhex(digits[2:])


def _date(text: str, type_: ColumnType) -> Any:
    return _datetime(string(text), "D", np.iinfo(np.int32), type_)


def _timestamp(text: str, type_: ColumnType) -> Any:
    value = string(text)
    zone = type_.kind is Kind.TIMESTAMPTZ and value.endswith("Z")
    return _datetime(value[:-1] if zone else value, "us", np.iinfo(np.int64), type_)


def _time(text: str, type_: ColumnType) -> Any:
    hours, minutes, seconds = string(text).split(":")
    us = round(float(seconds) * 1_000_000)
    return plain_value(pa.scalar((int(hours) * 60 + int(minutes)) * 60_000_000 + us, type_.arrow))


def _datetime(text: str, unit: Literal["D", "us"], limits: np.iinfo[Any], type_: ColumnType) -> Any:
    special = {"infinity": int(limits.max), "-infinity": int(limits.min)}
    number = special.get(text)
    if number is None:
        number = int(np.array(text, f"datetime64[{unit}]").astype(np.int64))
    return plain_value(pa.scalar(number, type_.arrow))


def _json(text: str, _: ColumnType) -> str:
    return NULL if text == JSON_NULL_OBJECT else text


def _nested(text: str, _: ColumnType) -> str:
    return text


_READERS: dict[Kind, Callable[[str, ColumnType], Any]] = {
    Kind.BOOL: lambda text, _: _BOOLS[text],
    Kind.INT: _int,
    Kind.FLOAT: _float,
    Kind.DECIMAL: _decimal,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamp,
    Kind.JSON: _json,
    Kind.ARRAY: _nested,
    Kind.COMPOSITE: _nested,
}
