"""Batches of row changes, the unit in which rows move through the whole system."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NotRequired, TypedDict, Unpack, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ContractError
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp

TIMESTAMP_TYPE = pa.struct([pa.field("wall", pa.int64()), pa.field("logical", pa.int32())])
"""Arrow type of the columns `updated` and `mvcc`."""
UNAVAILABLE_TYPE = pa.list_(pa.string())
"""Arrow type of the column `unavailable`."""


class Op(IntEnum):
    """What happened to a row. Values of the column `op` (uint8)."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    SCAN = 4


class RowColumns(TypedDict):
    """The columns from which `RowBatch.of` builds a batch, see the table there. None stands for a missing column."""

    op: pa.Array
    updated: pa.StructArray
    key: pa.StructArray
    after: pa.StructArray
    before: NotRequired[pa.StructArray | None]
    mvcc: NotRequired[pa.StructArray | None]
    unavailable: NotRequired[pa.ListArray | None]
    topic: NotRequired[pa.StringArray | None]


_REQUIRED = {"op", "updated", "key", "after"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Changes of one table under one version of its schema, as an Arrow record batch.

    | column | Arrow type | meaning |
    |---|---|---|
    | `op` | uint8 | an `Op`: `INSERT`, `UPDATE`, `DELETE`, or `SCAN` for a row of a scan |
    | `updated` | struct of `wall` (ns) and `logical` | commit timestamp of the row version, or that of its scan |
    | `key` | `schema.key_type` | the row's own key, also of a delete; never null, and no field of it is null |
    | `after` | `schema.after_type` | null for a delete, unless a query gave the row and its deletes are messages too |
    | `before` | `schema.after_type` | only if the user wants it; null if there was no row |
    | `mvcc` | like `updated` | the row's own commit timestamp; only if the user wants it and the source knows it |
    | `unavailable` | list of names | columns of `after` that the source does not know; missing if there are none |
    | `topic` | string | the topic that a query gave the row; missing without such a query |

    In an unavailable column `after` has a null, which does not mean NULL. In a batch that a sink gets, all rows have
    the same `topic`. Within a slice the rows of one key are in `updated` order. A batch may be empty.
    """

    schema: TableSchema
    batch: pa.RecordBatch

    @classmethod
    def of(cls, schema: TableSchema, **columns: Unpack[RowColumns]) -> RowBatch:
        """Build a batch from its columns. Raises: ValueError if a column does not have the type that the schema
        requires.
        """
        types = {
            "op": pa.uint8(),
            "updated": TIMESTAMP_TYPE,
            "mvcc": TIMESTAMP_TYPE,
            "key": schema.key_type,
            "after": schema.after_type,
            "before": schema.after_type,
            "unavailable": UNAVAILABLE_TYPE,
            "topic": pa.string(),
        }
        if not types.keys() >= columns.keys() >= _REQUIRED:
            raise TypeError(f"columns of {schema.name} are {', '.join(columns)}, not those of a RowBatch")
        given = cast(dict[str, pa.Array | None], columns)
        present = {name: column for name in types if (column := given.get(name)) is not None}
        for name, column in present.items():
            if column.type != types[name]:
                raise ValueError(f"column {name} of {schema.name} is {column.type}, expected {types[name]}")
        return cls(schema=schema, batch=pa.RecordBatch.from_pydict(present))

    def __len__(self) -> int:
        return cast(int, self.batch.num_rows)

    def __repr__(self) -> str:
        return f"RowBatch({self.schema.name} v{self.schema.version}, {len(self)} rows)"

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the rows take."""
        return cast(int, self.batch.nbytes)

    @property
    def has_before(self) -> bool:
        return "before" in self.batch.schema.names

    @property
    def has_unavailable(self) -> bool:
        """Whether a row has columns in `unavailable`."""
        if "unavailable" not in self.batch.schema.names:
            return False
        column = self.batch.column("unavailable")
        return bool(column.null_count < len(column))

    @property
    def topic(self) -> str | None:
        """In a batch that a sink gets: the topic that a query gave to the rows; None if the table's topic applies."""
        if "topic" not in self.batch.schema.names or not len(self):
            return None
        return cast(str, self.batch.column("topic")[0].as_py())

    def column(self, name: str) -> pa.Array:
        """Return a column of the table above. Raises: KeyError if this batch does not have it."""
        return self.batch.column(name)

    def shown_key(self, row: int) -> dict[str, Any]:
        """Return the key of one row for error messages; see `shown_key`."""
        return shown_key(self.column("key")[row])

    def slice(self, offset: int, length: int | None = None) -> RowBatch:
        """Return some rows without copying them."""
        return RowBatch(schema=self.schema, batch=self.batch.slice(offset, length))

    def latest(self) -> Timestamp:
        """Return the greatest `updated` of the batch; zero if it is empty."""
        if len(self) == 0:
            return Timestamp()
        wall, logical = self._updated()
        greatest = wall.max()
        return Timestamp(int(greatest), int(logical[wall == greatest].max()))

    def earliest(self) -> Timestamp:
        """Return the least `updated` of the batch. Raises: ValueError if it is empty."""
        wall, logical = self._updated()
        least = wall.min()
        return Timestamp(int(least), int(logical[wall == least].min()))

    def row_below(self, bound: Timestamp) -> int | None:
        """Return the index of the first row with `updated` below *bound*; None if there is no such row."""
        if len(self) == 0:
            return None
        wall, logical = self._updated()
        if wall.min() > bound.wall:
            return None
        below = (wall < bound.wall) | ((wall == bound.wall) & (logical < bound.logical))
        return int(below.argmax()) if below.any() else None

    def later_than(self, bound: Timestamp) -> np.ndarray:
        """Return, for each row, whether its `updated` is above *bound*."""
        wall, logical = self._updated()
        later: np.ndarray = (wall > bound.wall) | ((wall == bound.wall) & (logical > bound.logical))
        return later

    def _updated(self) -> tuple[np.ndarray, np.ndarray]:
        updated = self.column("updated")
        return updated.field("wall").to_numpy(), updated.field("logical").to_numpy()

    def to_ipc(self) -> pa.Buffer:
        """Return the batch with its schema as one self-contained Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        self._write_ipc(sink)
        return sink.getvalue()

    def to_ipc_parts(self) -> list[pa.Buffer]:
        """Return the bytes of `to_ipc` in consecutive parts, which share the memory of the values."""
        parts = _Parts()
        self._write_ipc(pa.PythonFile(parts, mode="w"))
        return parts.buffers

    def _write_ipc(self, sink: pa.NativeFile) -> None:
        metadata = {b"cdc.schema": json.dumps(self.schema.to_json(), separators=(",", ":")).encode()}
        schema = self.batch.schema.with_metadata(metadata)
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(self.batch.replace_schema_metadata(metadata))

    @classmethod
    def from_ipc(cls, data: pa.Buffer | bytes) -> RowBatch:
        """Return the batch that `to_ipc` wrote, without copying its values."""
        with pa.ipc.open_stream(data) as reader:
            schema = TableSchema.from_json(json.loads(reader.schema.metadata[b"cdc.schema"]))
            return cls(schema=schema, batch=reader.read_next_batch().replace_schema_metadata(None))

    @staticmethod
    def timestamps(wall: pa.Array, logical: pa.Array) -> pa.StructArray:
        """Return a column of timestamps from int64 wall nanoseconds and int32 logical counters."""
        return pa.StructArray.from_arrays([wall, logical], fields=list(TIMESTAMP_TYPE))

    @staticmethod
    def struct(type_: pa.StructType, arrays: Sequence[pa.Array], mask: pa.Array | None = None) -> pa.StructArray:
        """Return a `key`, `after` or `before` column from the arrays of its fields; *mask* is true where it is null."""
        return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=mask)


def fields_by_name(structs: pa.StructArray) -> dict[str, pa.Array]:
    """Return the fields of `key`, `after` or `before`, null where a struct is null."""
    return dict(zip((field.name for field in structs.type), structs.flatten(), strict=True))


class _Parts:
    """A write-only file object that keeps the buffers it is given, without copying them."""

    closed = False

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer] = []

    def write(self, data: pa.Buffer | bytes) -> int:
        self.buffers.append(pa.py_buffer(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""


def shown_key(key: pa.StructScalar) -> dict[str, Any]:
    """Return one entry of a column `key` for error messages: values as Python objects, or as text.

    `as_py` alone fails for infinite dates, the time 24:00:00, and years after 9999.
    """
    return {name: shown_value(key[name]) for name in key}


_MOST_32, _MOST_64 = 2**31 - 1, 2**63 - 1
_TEXTS = {
    pa.types.is_date: {_MOST_32: "infinity", -_MOST_32 - 1: "-infinity"},
    pa.types.is_timestamp: {_MOST_64: "infinity", -_MOST_64 - 1: "-infinity"},
    pa.types.is_time: {86_400_000_000: "24:00:00"},
}
"""Values that Python does not have, by the test of their Arrow type."""


def shown_value(value: pa.Scalar) -> Any:
    """Return one value for messages: as Python has it, or as text where Python has no such value."""
    for is_of, texts in _TEXTS.items():
        if is_of(value.type) and value.value in texts:
            return texts[value.value]
    if value.is_valid and isinstance(value, pa.StringScalar | pa.LargeStringScalar | pa.StringViewScalar):
        return value.as_buffer().to_pybytes().decode(errors="backslashreplace")  # as_py refuses what is not UTF-8
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # years that Python does not have
        return str(value.value)


_WITHOUT_BEFORE = pa.array([Op.INSERT, Op.SCAN], pa.uint8())


def shown_column(rows: RowBatch, member: str) -> pa.StructArray | None:
    """Return the column of *member*, see `Envelope.column`. Raises: ContractError."""
    names, updated = rows.batch.schema.names, rows.column("updated")
    if member == "mvcc_timestamp":
        mvcc = rows.column("mvcc") if "mvcc" in names else updated
        return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)
    if member in names:
        return rows.column(member)
    if not pc.all(pc.is_in(rows.column("op"), _WITHOUT_BEFORE), min_count=0).as_py():
        raise ContractError(f"table {rows.schema.name}: the source left out column 'before', which 'diff' requires")
    return None
