"""Masks: what is delivered in place of the values of a confidential column.

    hash          the HMAC-SHA-256 of the value's UTF-8 text, or of its bytes, as 64 hexadecimal digits
    redact        `***` for texts, null for values of any other type
    truncate = N  the first N characters of a text

A null stays null. Equal values have equal hashes under one key, in whatever table they are, so that they can be joined.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.options import did_you_mean
from cdc_core.schema import Column, ColumnType, Kind

REDACTED = "***"
_TEXT = ColumnType(kind=Kind.STRING, source="text")
_NAMES = ("hash", "redact", "truncate")
_WITHOUT_HASH = (Kind.BOOL, Kind.FLOAT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
"""Kinds with few values, or without one text for each value."""
_REMEDY = "use 'redact', or exclude the column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """How the values of one column are masked. `characters` is how many `truncate` leaves."""

    kind: Literal["hash", "redact", "truncate"]
    characters: int = 0

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return the mask that a changefeed's file has for a column. Raises: ValueError, which ends a sentence."""
        if value in ("hash", "redact"):
            return cls(kind=value)
        if isinstance(value, str):
            raise ValueError(f"has no meaning: {value!r}{did_you_mean(value, _NAMES)}")
        if not isinstance(value, Mapping) or set(value) != {"truncate"}:
            raise ValueError("must be 'hash', 'redact', or { truncate = N }")
        characters = value["truncate"]
        if isinstance(characters, bool) or not isinstance(characters, int) or characters < 1:
            raise ValueError("must leave at least 1 character: { truncate = 1 }")
        return cls(kind="truncate", characters=characters)

    def to_json(self) -> Any:
        """Return the value for `parse`."""
        return {"truncate": self.characters} if self.kind == "truncate" else self.kind

    def refusal(self, type_: ColumnType, *, in_key: bool = False) -> str | None:
        """Return why values of *type_* cannot be masked so, with a remedy; None when they can.

        *in_key*: the column is part of the key, which messages show even if the column is excluded.
        """
        remedy = "every message shows the key, so remove the mask, or leave out the table" if in_key else _REMEDY
        if self.kind == "hash" and type_.kind in _WITHOUT_HASH:
            return f"'hash' cannot mask values of the type {type_.source}; {remedy}"
        if self.kind == "truncate" and type_.kind is not Kind.STRING:
            return f"'truncate' masks text only, but the type is {type_.source}; {remedy}"
        return None

    def column(self, column: Column) -> Column:
        """Return *column* as it is with masked values."""
        if self.kind == "hash" or column.type.kind is Kind.STRING:
            return Column(name=column.name, type=_TEXT, nullable=column.nullable)
        return Column(name=column.name, type=column.type)

    def applied(self, values: pa.Array, type_: ColumnType, *, key: bytes) -> pa.Array:
        """Return *values* of a column of *type_*, masked; *key* is for `hash`."""
        if self.kind == "hash":
            return _hashed(values, key)
        if type_.kind is not Kind.STRING:
            return pa.nulls(len(values), values.type)
        if self.kind == "redact":
            return pc.if_else(values.is_valid(), pa.scalar(REDACTED, pa.string()), pa.scalar(None, pa.string()))
        return pc.utf8_slice_codeunits(values, 0, self.characters)


def _hashed(values: pa.Array, key: bytes) -> pa.StringArray:
    texts = values if pa.types.is_binary(values.type) else values.cast(pa.string()).view(pa.binary())
    encoded = texts.dictionary_encode()
    digests = [hmac.digest(key, value, "sha256").hex() for value in encoded.dictionary.to_pylist()]
    return pa.array(digests, pa.string()).take(encoded.indices)
