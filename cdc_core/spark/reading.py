"""What a changefeed has kept in files as a Spark DataFrame: every row once, read by as many tasks as Spark has.

    from cdc_core.spark.reading import changes

    orders = changes(spark, "s3://bucket/out?AUTH=implicit", table="public.orders")
    newest = Window.partitionBy("id").orderBy(desc("updated"))
    orders.withColumn("n", row_number().over(newest)).where("n = 1 AND op <> 'delete'")      # the table at the mark

The driver reads manifests and schemas, tasks read data files. The URI goes to Spark in an option that it redacts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_core.errors import ConfigError, HistoryLostError
from cdc_core.reading import ChangeReader
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import ColumnType, Kind, TableSchema
from cdc_core.stored_history import StoredFile
from cdc_core.timestamp import Timestamp

__all__ = ["changes"]

_OPTION = "cdc.secret.changes"
"""Spark redacts options whose name holds 'secret'."""
_TASK_BYTES = 32 * 1024 * 1024
"""Files of a task together have about this size, unless there are fewer tasks than Spark can run at a time."""
_BATCH_ROWS = 10_000
_MOST_DIGITS = 38
_WHOLE_DAY_US = 86_400_000_000
_OPS = pa.array([None, *(op.name.lower() for op in sorted(Op))])

_registered: WeakSet[SparkSession] = WeakSet()


def changes(
    spark: SparkSession,
    uri: str,
    *,
    table: str,
    upto: Timestamp | None = None,
    after: Timestamp = Timestamp(),
    changefeed: str = "",
    prefix: str = "",
) -> DataFrame:
    """Return every row of *table* with *after* < `updated` <= the newest mark that is not above *upto*, once.

    Columns are `op` (insert, update, delete or scan; insert where the files do not tell which of the others) and
    `updated` (text that sorts as time does), both with *prefix* before their names, then those of the table: of its
    newest version, then those that only older versions have. A deleted row has its key and nulls. Decimals of a
    declared precision of up to 38 digits are Spark decimals; times of day, arrays, JSON, intervals and all else that
    Arrow holds as text are text. A column whose type differs between versions has the type that takes both, text if
    need be.

    The rows have no order; those of a key have it by `updated`. The mark is fixed when this is called. Raises: as
    `ChangeReader`; ConfigError when there is no file of the table, or it has a column named like one of the two.
    """
    tasks = max(1, spark.sparkContext.defaultParallelism)
    wanted = _Wanted(
        uri=uri, table=table, upto=Timestamp(), after=after, changefeed=changefeed, prefix=prefix, tasks=tasks
    )
    with wanted.reader() as reader:
        wanted = replace(wanted, upto=reader.newest(upto))
        target = wanted.target(reader, wanted.files(reader))
    if spark not in _registered:  # Spark warns of a second time
        spark.dataSource.register(ChangesSource)
        _registered.add(spark)
    return (
        spark.read.format(ChangesSource.name())
        .schema(from_arrow_schema(target))
        .option(_OPTION, wanted.to_option())
        .load()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What `changes` was asked for, with the mark that it is read up to."""

    uri: str
    table: str
    upto: Timestamp
    after: Timestamp
    changefeed: str
    prefix: str
    tasks: int

    def to_option(self) -> str:
        return json.dumps({**asdict(self), "upto": str(self.upto), "after": str(self.after)})

    @classmethod
    def from_option(cls, text: str) -> Self:
        value = json.loads(text)
        return cls(**{**value, **{name: Timestamp.parse(value[name]) for name in ("upto", "after")}})

    def reader(self) -> ChangeReader:
        return ChangeReader(self.uri, changefeed=self.changefeed)

    def files(self, reader: ChangeReader) -> Iterator[StoredFile]:
        return reader.files(table=self.table, upto=self.upto, after=self.after)

    def target(self, reader: ChangeReader, files: Iterable[StoredFile]) -> pa.Schema:
        """Return the columns of the rows of *files*. Raises: ConfigError when there is none."""
        versions: dict[str, TableSchema] = {}
        for file in files:
            if file.schema_path not in versions:
                versions[file.schema_path] = reader.shape(file).schema
        if not versions:
            raise ConfigError(f"no file that {reader!r} reads holds rows of table '{self.table}'")
        return _target(sorted(versions.values(), key=lambda schema: schema.version), prefix=self.prefix)


class FilesPartition(InputPartition):
    """The files of one task, and the columns that all tasks give."""

    def __init__(self, files: Sequence[StoredFile], target: pa.Schema) -> None:
        super().__init__(None)
        self.files = tuple(files)
        self.target = target


class ChangesSource(DataSource):
    """Format `cdc_changes`. Its one option is what `changes` was asked for."""

    @classmethod
    def name(cls) -> str:
        return "cdc_changes"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return ChangesReader(_Wanted.from_option(self.options[_OPTION]))


class ChangesReader(DataSourceReader):
    """Deals files out to tasks, and reads them there."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        with self._wanted.reader() as reader:
            files = list(self._wanted.files(reader))
            target = self._wanted.target(reader, files)
        share = min(_TASK_BYTES, sum(file.bytes for file in files) // self._wanted.tasks + 1)
        dealt: list[list[StoredFile]] = []
        left = 0
        for file in files:
            if left <= 0:
                dealt.append([])
                left = share
            dealt[-1].append(file)
            left -= file.bytes
        return [FilesPartition(each, target) for each in dealt]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        wanted = self._wanted
        with wanted.reader() as reader:
            for file in partition.files:
                rows = reader.rows(file, upto=wanted.upto, after=wanted.after)
                for offset in range(0, len(rows), _BATCH_ROWS):
                    yield _columns(rows.slice(offset, _BATCH_ROWS), partition.target, path=file.path)


def _target(versions: Sequence[TableSchema], *, prefix: str) -> pa.Schema:
    """Return the columns of rows of all *versions*, of which the last is the newest."""
    metadata = [pa.field(f"{prefix}op", pa.string()), pa.field(f"{prefix}updated", pa.string())]
    types: dict[str, pa.DataType] = {}
    for schema in reversed(versions):
        for column in schema.columns:
            type_ = _type(column.type)
            types[column.name] = _common(types.get(column.name, type_), type_)
    for field in metadata:
        if field.name in types:
            raise ConfigError(
                f"table {versions[-1].name} has a column '{field.name}' of its own: give a prefix, such as '__cdc_',"
                " for the columns op and updated"
            )
    return pa.schema([*metadata, *(pa.field(name, type_) for name, type_ in types.items())])


def _type(type_: ColumnType) -> pa.DataType:
    if type_.kind is Kind.DECIMAL and type_.precision is not None:
        scale = type_.scale or 0
        precision = max(type_.precision - min(scale, 0), scale)  # numeric(3,-2) has five digits, numeric(2,4) four
        if precision <= _MOST_DIGITS:
            return pa.decimal128(precision, max(scale, 0))
    return pa.string() if type_.kind is Kind.TIME else type_.arrow  # Spark has no type for times of day, as it comes


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type that values of both have without loss."""
    if one == other:
        return one
    try:
        schemas = [pa.schema([("c", type_)]) for type_ in (one, other)]
        found = pa.unify_schemas(schemas, promote_options="permissive").field("c").type
    except pa.ArrowTypeError:
        return pa.string()
    return pa.string() if pa.types.is_decimal256(found) else found


def _columns(rows: RowBatch, target: pa.Schema, *, path: str) -> pa.RecordBatch:
    """Return *rows* in the columns of *target*."""
    after, key = rows.column("after"), rows.column("key")
    images = dict(zip((field.name for field in after.type), after.flatten(), strict=True))
    if after.null_count:
        for field, values in zip(key.type, key.flatten(), strict=True):
            images[field.name] = pc.coalesce(images[field.name], values)
    wall, logical = rows.column("updated").flatten()
    digits = pc.utf8_lpad(logical.cast(pa.string()), 10, "0")
    arrays = [_OPS.take(rows.column("op")), pc.binary_join_element_wise(wall.cast(pa.string()), digits, ".")]
    for field in list(target)[len(arrays) :]:
        values = images.get(field.name)
        try:
            arrays.append(pa.nulls(len(rows), field.type) if values is None else _cast(values, field.type))
        except pa.ArrowInvalid as error:
            raise HistoryLostError(
                f"column {field.name} of table {rows.schema.name} in file {path} has a value that is no {field.type}:"
                f" {error}"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return *values* as *type_*. Raises: pa.ArrowInvalid for a value that it does not have."""
    if not pa.types.is_time(values.type) or not pa.types.is_string(type_):
        return values.cast(type_)
    whole_day = pc.equal(values.cast(pa.int64()), _WHOLE_DAY_US)  # Arrow has no text for it
    return pc.if_else(whole_day, "24:00:00.000000", values.cast(type_))
