from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.scanning import plain

from cdc_core import Column, ColumnType, EncoderContext, Envelope, Kind, TableName, TableSchema

SCHEMA = TableSchema(
    name=TableName("shop", "public", "orders"),
    version=2,
    columns=tuple(
        Column(name=name, type=ColumnType(kind=kind, source=str(kind)))
        for name, kind in {"a": Kind.INT, "d": Kind.DECIMAL, "j": Kind.JSON}.items()
    ),
    primary_key=("a",),
)


def decoder(envelope: str = "wrapped") -> JsonDecoder:
    options = Envelope(name=envelope)
    return JsonDecoder(EncoderContext(changefeed="feed", envelope=options, options=JsonOptions()))


def test_plain_numbers_are_exact() -> None:
    digits = "9" * 10_000
    key = plain(f"[1, 22.30, 1e+300, 9223372036854775807, -0, {digits}, 0.1]")
    assert key == [1, Decimal("22.30"), Decimal("1e300"), 2**63 - 1, 0, Decimal(digits), Decimal("0.1")]
    assert not any(isinstance(number, float) for number in key)
    assert [str(key[1]), str(key[4])] == ["22.30", "-0"]


@pytest.mark.parametrize(
    "value",
    [
        *(b"[1]", b"{", b"{}x", b'{"a": NaN}', b'{"a": 1} {}', b'{"a": "\n"}', b'{"a": "\xff"}', b'{"a": 1,}'),
        *(b'{"a" 1}', b"{a: 1}", b'{"a": 1, "a": 1}', b'{"after": {"a": 1, "a": 1}}', b'{"after": [1]}'),
    ],
)
def test_a_value_that_is_not_a_json_object_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoder().message(SCHEMA, b"[1]", value)


def test_a_float_of_32_bits_is_the_nearest_one() -> None:
    type_ = ColumnType(kind=Kind.FLOAT, source="real", bits=32)
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, Column(name="r", type=type_)))
    read = decoder().message(schema, b"[1]", b'{"after": {"a": 1, "r": 7.038531e-26}}').after
    assert read is not None
    assert np.float32(read["r"]).tobytes() == np.uint32(0x15AE43FD).tobytes()


@pytest.mark.parametrize("key", [b"", b"{}", b"1", b"[Infinity]", b"[1,]", b"[1", b"[,]"])
def test_a_key_that_is_not_a_json_array_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoder().message(SCHEMA, key, b"{}")


def test_rows_of_other_versions_are_read() -> None:
    value = b'{"after": {"a": "was text", "gone": 1.50, "j": {"b" : 1e0}}, "before": {"a": 1, "d": 1.50}}'
    row = decoder().message(SCHEMA, None, value)
    assert row.after == {"a": "was text", "j": '{"b" : 1e0}', "gone": Decimal("1.50")}
    assert row.before == {"a": 1, "d": "1.50"}
    assert row.key == ("was text",)


def test_a_deleted_row_has_the_key_of_the_row_before() -> None:
    assert decoder().message(SCHEMA, None, b'{"after": null, "before": {"a": 1}}').key == (1,)
    assert decoder().message(SCHEMA, None, b'{"after": null}').key is None
    assert decoder().message(SCHEMA, b"[1]", b'{"after": null}').key == (1,)
