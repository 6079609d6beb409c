from __future__ import annotations

import pyarrow as pa
import pytest

from cdc_core import ContractError
from cdc_core.encoder import joined_lines, joined_values

VALUES = [b"one", b"", b"two\xff\x00", b"three"]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_lines_are_joined_from_any_part_of_an_array(type_: pa.DataType) -> None:
    array = pa.array(VALUES, type_)
    for start in range(len(VALUES) + 1):
        for length in range(len(VALUES) + 1 - start):
            part = array.slice(start, length)
            wanted = VALUES[start : start + length]
            assert bytes(joined_lines(part)) == b"".join(value + b"\n" for value in wanted)
            assert bytes(joined_values(part.cast(pa.large_binary()))) == b"".join(wanted)


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()], ids=str)
def test_no_values_give_no_bytes(type_: pa.DataType) -> None:
    assert bytes(joined_lines(pa.array([], type_))) == b""


def test_a_tombstone_cannot_be_a_line() -> None:
    with pytest.raises(ContractError, match="tombstone"):
        joined_lines(pa.array([b"one", None], pa.large_binary()))
    assert bytes(joined_lines(pa.array([b"one", None], pa.large_binary()).slice(0, 1))) == b"one\n"
