"""What the hook for functions of queries returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from cdc_core.registrations import Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRegistration(Registration):
    """A Python function that queries call by `name`, which SQL does not have.

    `function`, "module:function", stays unloaded until a query uses it. It gets an Arrow array for each of `arguments`,
    all of the same length, and returns an array of the type `returns` with one value for each row, in order. Nulls are
    its own affair: an argument may be null in some rows. It may be called with any rows, in any process, and again for
    the same rows: it must be `deterministic`, which one has to say. When it raises an exception, it is called again
    with parts of the rows, down to the rows that it fails for; these are bad rows, and no others.
    """

    KIND: ClassVar[str] = "function"
    CLASSES: ClassVar[tuple[str, ...]] = ("function",)

    options: str = field(default="", init=False)
    """Functions have none."""
    function: str
    arguments: tuple[pa.DataType, ...]
    returns: pa.DataType
    deterministic: bool
