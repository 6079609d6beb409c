"""Texts of floats, written as JavaScript writes numbers.

A text has the fewest digits that read back as the same value, no fraction `.0`, and an exponent from 1e+21 on and below
1e-6: `1`, `0.1`, `1e+300`, `1.5e-7`, `-0`. 32-bit floats have the digits that 32 bits need. The form is defined here,
not by a library, because it determines the bytes of message keys.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa

from cdc_column_texts.pieces import Piece, or_null, series

_SPECIAL = {"NaN": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_MIN_PLAIN = 1e-4
_MAX_PLAIN = 1e12
"""Polars writes values from the least to below the most without an exponent, for 32 and 64 bits."""


def float_pieces(array: pa.Array, *, quote: str = '"') -> list[Piece]:
    """Return the texts of a float *array*, `null` where it is null. NaN and infinities are between *quote*s."""
    values = series(array)
    texts = values.cast(pl.String).str.strip_suffix(".0")
    finite = values.is_finite()
    if not finite.all():
        texts = texts.replace({name: f"{quote}{text}{quote}" for name, text in _SPECIAL.items()})
    size = values.abs()
    odd = finite & ((size >= _MAX_PLAIN) | ((size < _MIN_PLAIN) & (size > 0)))
    return [or_null(_rewritten(texts, values, odd) if odd.any() else texts)]


def _rewritten(texts: pl.Series, values: pl.Series, odd: pl.Series) -> pl.Series:
    """Return *texts*, those of *odd* values rewritten one by one: they are very large or very small."""
    places = odd.arg_true().to_numpy()
    numbers = values.gather(places).to_numpy()
    shortest = map(str, numbers.tolist() if values.dtype == pl.Float64 else numbers)
    written = [_written(text) for text in shortest]
    rows = np.arange(len(texts), dtype=np.uint32)
    rows[places] = len(texts) + np.arange(len(places))
    return pl.concat([texts, pl.Series(written, dtype=pl.String)]).gather(pl.Series(rows))


def _written(shortest: str) -> str:
    """Return a number as JavaScript writes it; *shortest* is how Python writes it."""
    digits, _, power = shortest.partition("e")
    if not power:
        return shortest.removesuffix(".0")
    exponent = int(power)
    return f"{Decimal(shortest):f}" if -6 <= exponent < 21 else f"{digits}e{exponent:+d}"
