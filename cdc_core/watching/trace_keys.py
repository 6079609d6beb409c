"""The key that a trace looks for, as people write it."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

from cdc_core.errors import ConfigError


def checked_key(text: str) -> str:
    """Return the key of a row that *text*, a JSON array of its values, stands for, as a `Trace` takes it.

    It is JSON that everybody can read and store, with all digits of its numbers. Raises: ConfigError.
    """
    try:
        return written_key(json.loads(text, parse_float=key_number, parse_constant=key_number))
    except (ValueError, RecursionError):
        raise ConfigError(
            f"the key '{text}' is not a JSON array of the values of a key; write it as messages show it, such as '[42]'"
            " or '[\"eu\", 7]'"
        ) from None


def written_key(values: Any) -> str:
    """Return the key with *values*, whose fractions are of `key_number`, as JSON. Raises: ValueError."""
    if not isinstance(values, list) or not values or any(isinstance(value, list | dict | None) for value in values):
        raise ValueError("no values of a key")
    written = (str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False) for value in values)
    text = f"[{', '.join(written)}]"
    text.encode()  # half a surrogate pair is no character
    return text


def key_number(text: str) -> Decimal:
    """Return a number of JSON with all of its digits. Raises: ValueError for one that is no finite double."""
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is too large, or no number")
    try:
        return Decimal(text)
    except ArithmeticError as error:  # its exponent has too many digits
        raise ValueError(f"{text} is too small") from error
