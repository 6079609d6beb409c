"""What the hook for functions of queries returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from cdc_core.registrations import Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRegistration(Registration):
    """A Python function that queries call by `name`: lowercase letters, digits and `_`, and not a name in SQL.

    It gets an Arrow array for each argument, all of the same length, and returns an array with one value for each row,
    in order. It handles nulls: any argument may be null in any row. It may be called with any rows, in any process, and
    again for the same rows. If it raises an exception, it is called again with parts of the rows, until the rows for
    which it fails are found; only these are bad rows.
    """

    KIND: ClassVar[str] = "function"
    CLASSES: ClassVar[tuple[str, ...]] = ("function",)

    options: str = field(default="", init=False)
    """Functions have none."""
    function: str
    """"module:function". It is loaded when a query that calls it is planned, and in Spark's Python workers."""
    arguments: tuple[pa.DataType, ...]
    """The Arrow type of each argument; at least one."""
    returns: pa.DataType
    """The Arrow type of the values."""
    deterministic: bool
    """Must be True, and must be given: a function that is not deterministic cannot be used."""
