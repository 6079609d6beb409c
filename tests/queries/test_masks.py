"""Masked values: hashes are Python's own HMAC, nulls stay nulls, and what cannot be masked is refused in a sentence."""

from __future__ import annotations

import hmac
import random
from typing import Any

import pyarrow as pa
import pytest

from cdc_core import Column, ColumnType, Kind
from cdc_core.queries.masks import REDACTED, Mask

KEY = b"a key of many bytes"
TEXT = ColumnType(kind=Kind.STRING, source="varchar(20)")
TYPES = {
    "text": (TEXT, ["", "a", "ä€𝄞", "o'neil\\", "x" * 5000]),
    "int": (ColumnType(kind=Kind.INT, source="bigint", bits=64), [0, -1, 2**63 - 1]),
    "decimal": (ColumnType(kind=Kind.DECIMAL, source="numeric"), ["1.0", "1.00", "NaN"]),
    "uuid": (ColumnType(kind=Kind.UUID, source="uuid"), ["00000000-0000-0000-0000-00000000000a"]),
    "bytes": (ColumnType(kind=Kind.BYTES, source="bytea"), [b"", b"\xff\x00"]),
    "enum": (ColumnType(kind=Kind.ENUM, source="mood", labels=("ok",)), ["ok"]),
}
FLAG = ColumnType(kind=Kind.BOOL, source="boolean")


@pytest.mark.parametrize("name", TYPES)
def test_a_hash_is_the_hmac_of_the_text_or_the_bytes(name: str) -> None:
    type_, known = TYPES[name]
    rng = random.Random(name)
    values = [rng.choice([None, *known]) for _ in range(200)]
    for offset in (0, 7):  # a slice of a batch too
        array = pa.array(values, type_.arrow).slice(offset)
        found = Mask.parse("hash").applied(array, type_, key=KEY)
        assert found.type == pa.string()
        assert found.to_pylist() == [reference(value) for value in values[offset:]]


def reference(value: Any) -> str | None:
    if value is None:
        return None
    data = value if isinstance(value, bytes) else str(value).encode()
    return hmac.new(KEY, data, "sha256").hexdigest()


def test_texts_are_redacted_and_truncated_by_characters() -> None:
    values = pa.array(["", "ab", "ä€𝄞x", None])
    assert Mask.parse("redact").applied(values, TEXT, key=b"").to_pylist() == [REDACTED] * 3 + [None]
    assert Mask.parse({"truncate": 3}).applied(values, TEXT, key=b"").to_pylist() == ["", "ab", "ä€𝄞", None]


def test_other_types_are_redacted_to_null_and_keep_their_type() -> None:
    assert Mask.parse("redact").applied(pa.array([True, None]), FLAG, key=b"").equals(pa.nulls(2, pa.bool_()))
    column = Column(name="flag", type=FLAG, nullable=False)
    assert Mask.parse("redact").column(column) == Column(name="flag", type=FLAG, nullable=True)


@pytest.mark.parametrize("mask", ["hash", "redact", {"truncate": 2}])
def test_masked_texts_are_texts_of_any_length(mask: Any) -> None:
    column = Mask.parse(mask).column(Column(name="name", type=TEXT, nullable=False))
    assert (column.type.source, column.nullable) == ("text", False)


@pytest.mark.parametrize("mask", ["hash", "redact", {"truncate": 2}])
def test_a_mask_is_its_own_json(mask: Any) -> None:
    assert Mask.parse(mask).to_json() == mask


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ("hsah", "did you mean 'hash'"),
        (3, "must be 'hash', 'redact', or { truncate = N }"),
        ({"truncate": 0}, "must leave at least 1 character"),
        ({"truncate": True}, "must leave at least 1 character"),
        ({"truncate": 1, "hash": 2}, "must be 'hash'"),
    ],
)
def test_another_mask_is_refused(mask: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Mask.parse(mask)


def test_what_a_mask_is_not_for_is_said() -> None:
    assert "boolean; use 'redact'" in str(Mask.parse("hash").refusal(FLAG))
    assert "'truncate' masks text only" in str(Mask.parse({"truncate": 1}).refusal(TYPES["int"][0]))
    assert Mask.parse("redact").refusal(FLAG) is None
