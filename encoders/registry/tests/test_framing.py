from __future__ import annotations

import pyarrow as pa
import pytest
from cdc_schema_registry import HEADER_BYTES, frame, frame_one, unframe

VALUES = [b"", b"a", None, b"\x00\xff" * 100]
IDS = [0, 1, 128, 255, 2**31 - 1, 2**32 - 1]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("schema_id", IDS)
def test_every_value_follows_a_zero_and_the_id(type_: pa.DataType, schema_id: int) -> None:
    framed = frame(pa.array(VALUES, type_), schema_id)
    assert framed.type == type_
    header = b"\x00" + schema_id.to_bytes(4, "big")
    assert framed.to_pylist() == [None if value is None else header + value for value in VALUES]


def test_slices_and_empty_arrays_are_framed() -> None:
    assert frame(pa.array(VALUES, pa.large_binary()).slice(1, 2), 7).to_pylist() == [b"\0\0\0\0\x07a", None]
    assert len(frame(pa.array([], pa.large_binary()), 7)) == 0


@pytest.mark.parametrize("schema_id", IDS)
def test_one_message_is_framed_and_read_back(schema_id: int) -> None:
    message = frame_one(b"payload", schema_id)
    assert message == frame(pa.array([b"payload"]), schema_id)[0].as_py()
    assert unframe(message) == (schema_id, b"payload")


@pytest.mark.parametrize("message", [b"", b"\0\0\0\0", b'{"after": null}'])
def test_a_message_without_a_header_is_refused(message: bytes) -> None:
    assert HEADER_BYTES == 5
    with pytest.raises(ValueError, match="wire format"):
        unframe(message)
