"""Bodies of files of lines."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cdc_conformance.rows import INT8, Change, rows, table

from cdc_core import ContractError, NewlineBody, joined_lines, joined_values

VALUES = [b"one", b"", b"two\xff\x00", b"three"]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_lines_are_joined_from_any_slice(type_: pa.DataType) -> None:
    array = pa.array(VALUES, type_)
    for start in range(len(VALUES) + 1):
        for length in range(len(VALUES) + 1 - start):
            part = array.slice(start, length)
            wanted = VALUES[start : start + length]
            assert bytes(joined_lines(part)) == b"".join(value + b"\n" for value in wanted)
            assert bytes(joined_values(part.cast(pa.large_binary()))) == b"".join(wanted)


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()], ids=str)
def test_an_empty_array_gives_no_bytes(type_: pa.DataType) -> None:
    assert bytes(joined_lines(pa.array([], type_))) == b""


def test_a_tombstone_cannot_be_a_line() -> None:
    with pytest.raises(ContractError, match="tombstone"):
        joined_lines(pa.array([b"one", None], pa.large_binary()))
    assert bytes(joined_lines(pa.array([b"one", None], pa.large_binary()).slice(0, 1))) == b"one\n"


def test_a_body_of_lines_has_the_value_of_each_row() -> None:
    body = NewlineBody(lambda batch: batch.column("key").field("id").cast(pa.string()).cast(pa.binary()))
    batch = rows(table("orders", {"id": INT8}), [Change({"id": number}) for number in range(3)])
    assert bytes(body.write(batch)) + bytes(body.write(batch.slice(1, 1))) + bytes(body.finish()) == b"0\n1\n2\n1\n"
