"""The messages of `changefeed.proto` and their fields: what encoder and decoder know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_column_texts.binary import varint_bytes

PACKAGE = "cdc.changefeed"
TIMESTAMP = "google.protobuf.Timestamp"
_VARINT, _EIGHT_BYTES, _DELIMITED, _FOUR_BYTES = 0, 1, 2, 5
_WIRE_TYPES = {"int32": _VARINT, "int64": _VARINT, "bool": _VARINT, "double": _EIGHT_BYTES, "float": _FOUR_BYTES}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. *type* is a type of Protocol Buffers, or the name of a message.

    In a map, the keys are strings and *type* is that of the values.
    """

    name: str
    number: int
    type: str = "string"
    form: Literal["single", "repeated", "map"] = "single"


_UNAVAILABLE = Field("unavailable", 100, form="repeated")
MESSAGES: dict[str, tuple[Field, ...]] = {
    "Message": (
        Field("wrapped", 1, "WrappedEnvelope"),
        Field("bare", 2, "BareEnvelope"),
        Field("resolved", 4, "Resolved"),
        Field("bareResolved", 5, "BareResolved"),
    ),
    "WrappedEnvelope": (
        Field("after", 1, "Record"),
        Field("before", 2, "Record"),
        Field("updated", 4),
        Field("mvcc_timestamp", 5),
        Field("key", 6, "Key"),
        Field("topic", 7),
        _UNAVAILABLE,
    ),
    "BareEnvelope": (Field("values", 1, "Value", "map"), Field("__crdb__", 2, "Metadata")),
    "Metadata": (
        Field("updated", 1),
        Field("mvcc_timestamp", 2),
        Field("key", 3, "Key"),
        Field("topic", 4),
        _UNAVAILABLE,
    ),
    "Resolved": (Field("resolved", 1),),
    "BareResolved": (Field("__crdb__", 1, "Resolved"),),
    "Key": (Field("key", 1, "Value", "map"),),
    "Record": (Field("values", 1, "Value", "map"),),
    "Value": (
        Field("string_value", 1),
        Field("bytes_value", 2, "bytes"),
        Field("int32_value", 3, "int32"),
        Field("int64_value", 4, "int64"),
        Field("float_value", 5, "float"),
        Field("double_value", 6, "double"),
        Field("bool_value", 7, "bool"),
        Field("timestamp_value", 8, TIMESTAMP),
        Field("array_value", 9, "Array"),
        Field("tuple_value", 10, "Record"),
        Field("decimal_value", 11, "Decimal"),
        Field("date_value", 12),
        Field("interval_value", 13),
        Field("time_value", 14),
        Field("uuid_value", 15),
    ),
    "Array": (Field("values", 1, "Value", "repeated"),),
    "Decimal": (Field("value", 1),),
}
"""The fields of each message, in the order of their numbers."""
_OTHERS = {TIMESTAMP: (Field("seconds", 1, "int64"), Field("nanos", 2, "int32"))}
_TAGS = {
    (message, field.name): varint_bytes(field.number << 3 | _WIRE_TYPES.get(field.type, _DELIMITED))
    for message, fields in (MESSAGES | _OTHERS).items()
    for field in fields
}


def tag(message: str, field: str) -> bytes:
    """Return the bytes before a value of *field* of *message*: its number and wire type."""
    return _TAGS[message, field]


def delimited(start: bytes, data: bytes) -> bytes:
    """Return *start*, the size of *data*, and *data*: a field of text, bytes or a message after its tag."""
    return start + varint_bytes(len(data)) + data
