from __future__ import annotations

from decimal import Decimal

import pytest
from cdc_encoder_json.decoder import decode_key, decode_lines, decode_resolved, decode_value

from cdc_core import Timestamp


def test_numbers_come_back_exact() -> None:
    digits = "9" * 10_000
    key = decode_key(f"[1, 22.30, 1e+300, 9223372036854775807, -0, {digits}, 0.1]".encode())
    assert key == [1, Decimal("22.30"), Decimal("1e300"), 2**63 - 1, 0, Decimal(digits), Decimal("0.1")]
    assert not any(isinstance(number, float) for number in key)
    assert [str(key[1]), str(key[4])] == ["22.30", "-0"]


@pytest.mark.parametrize(
    "payload", [b"", b"[1]", b"{", b'{"a": NaN}', b'{"a": 1} {}', b'{"a": "\n"}', b'{"a": "\xff"}']
)
def test_what_is_no_json_object_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_value(payload)


@pytest.mark.parametrize("payload", [b"", b"{}", b"1", b"[Infinity]"])
def test_what_is_no_json_array_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_key(payload)


def test_lines_must_be_whole() -> None:
    assert decode_lines(b"") == []
    assert decode_lines(b'{"after": null}\n{"after": {}}\n') == [{"after": None}, {"after": {}}]
    with pytest.raises(ValueError, match="no end"):
        decode_lines(b'{"after": null}\n{"after"')
    with pytest.raises(ValueError, match=r"."):
        decode_lines(b'{"after": null}\n\n')


def test_a_resolved_mark_is_told_from_a_row() -> None:
    assert decode_resolved(b'{"resolved":"12.0000000003"}') == Timestamp(12, 3)
    assert decode_resolved(b'{"after": {"resolved": "12.0000000003"}}') is None


@pytest.mark.parametrize("envelope", ["bare", "row", "key_only"])
def test_without_wrapping_a_resolved_mark_is_told_from_rows_and_tombstones(envelope: str) -> None:
    assert decode_resolved(b'{"__crdb__":{"resolved":"12.0000000003"}}', envelope=envelope) == Timestamp(12, 3)
    assert decode_resolved(b'{"resolved": "12.0000000003"}', envelope=envelope) is None
    assert decode_resolved(b'{"__crdb__": {"updated": "12.0000000003"}, "a": 1}', envelope=envelope) is None
    assert decode_resolved(b"", envelope=envelope) is None
    assert decode_resolved(None, envelope=envelope) is None
