"""What encoders share: bodies of newline-joined messages."""

import pyarrow as pa
import pytest

from cdc_core.encoder import joined_lines


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
def test_each_message_is_followed_by_a_newline(type_: pa.DataType) -> None:
    values = pa.array([b"a", b"", b"ccc"], type_)
    assert bytes(joined_lines(values)) == b"a\n\nccc\n"
    assert bytes(joined_lines(values.slice(1))) == b"\nccc\n"
    assert bytes(joined_lines(values.slice(0, 0))) == b""
