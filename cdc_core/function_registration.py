"""What the hook for functions of queries returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from cdc_core.registrations import Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRegistration(Registration):
    """A Python function that queries call by `name`, which must not be a name of SQL.

    `function`, "module:function", stays unloaded until a query uses it. It gets an Arrow array for each of `arguments`,
    all of the same length, and returns an array of the type `returns` with one value for each row, in order. It
    handles nulls: any argument may be null in any row. It may be called with any rows, in any process, and again for
    the same rows: it must be `deterministic`, and declare it. When it raises an exception, it is called again
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
