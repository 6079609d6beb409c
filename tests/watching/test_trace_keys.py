"""The key that a trace looks for can be stored and shown, with all of its digits, or it is refused."""

from __future__ import annotations

import pytest

from cdc_core.changefeeds.tracing import checked_key
from cdc_core.errors import ConfigError


@pytest.mark.parametrize("text", ["[42]", '["eu", 7, true]', "[1.50, 0.12345678901234567890]", '["é\\u0000"]'])
def test_a_key_stays_as_it_was_written(text: str) -> None:
    assert checked_key(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("7", "[]", "[null]", "[[7]]", '[{"id": 7}]', "[7", "[" * 5000),
        *("[1e400]", "[NaN]", "[-Infinity]", "[1e-9999999999999999999999]", f"[{'9' * 5000}]"),
        '["\\ud800"]',
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a JSON array of key values"):
        checked_key(text)
