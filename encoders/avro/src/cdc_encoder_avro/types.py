"""The Avro type of each kind of column."""

from __future__ import annotations

from typing import Any

from cdc_core import ColumnType, Kind
from cdc_encoder_avro.names import is_avro_name
from cdc_encoder_avro.options import AvroOptions

_LOGICAL: dict[Kind, tuple[str, str]] = {
    Kind.UUID: ("string", "uuid"),
    Kind.DATE: ("int", "date"),
    Kind.TIME: ("long", "time-micros"),
    Kind.TIMESTAMP: ("long", "local-timestamp-micros"),
    Kind.TIMESTAMPTZ: ("long", "timestamp-micros"),
}
_PLAIN: dict[Kind, str] = {
    Kind.BOOL: "boolean",
    Kind.INT: "long",
    Kind.FLOAT: "double",
    Kind.BYTES: "bytes",
}
_WITH_SPECIAL_VALUES = frozenset({Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})


def branches(type_: ColumnType, options: AvroOptions, *, enum_name: str) -> list[Any]:
    """Return the branches of the union of a column of *type_*, without null. Values have the first branch if possible.

    Integers of every width are longs, and floats doubles, so that widening a column does not change its Avro type. A
    kind without a better type is a string. *enum_name* is the name of an Avro enum.
    """
    kind = type_.kind
    if kind in _PLAIN:
        return [_PLAIN[kind]]
    special = ["string"] if options.avro_special_values == "string" else []
    digits = type_.decimal_digits
    if digits is not None:
        precision, scale = digits
        return [{"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}, *special]
    if is_enum(type_, options):
        return [{"type": "enum", "name": enum_name, "symbols": list(type_.labels)}]
    if is_typed_array(type_, options):
        assert type_.element is not None
        return [{"type": "array", "items": ["null", *branches(type_.element, options, enum_name=enum_name)]}]
    if kind not in _LOGICAL:
        return ["string"]
    base, logical = _LOGICAL[kind]
    return [{"type": base, "logicalType": logical}, *(special if kind in _WITH_SPECIAL_VALUES else [])]


def is_enum(type_: ColumnType, options: AvroOptions) -> bool:
    """Return whether *type_* is an Avro enum: with avro_enum = 'enum', when all labels are Avro names."""
    if type_.kind is not Kind.ENUM or options.avro_enum != "enum":
        return False
    return bool(type_.labels) and all(is_avro_name(label) for label in type_.labels)


def is_typed_array(type_: ColumnType, options: AvroOptions) -> bool:
    """Return whether *type_* is an Avro array. Any other array is JSON text."""
    return type_.kind is Kind.ARRAY and options.avro_arrays == "typed" and type_.element is not None
