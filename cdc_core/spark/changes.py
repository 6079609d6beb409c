"""What a changefeed has kept in files as a Spark DataFrame: every row once, read by as many tasks as Spark has.

    from cdc_core.spark.changes import changes

    orders = changes(spark, "s3://bucket/out?AUTH=implicit", table="public.orders")
    newest = Window.partitionBy("id").orderBy(desc("updated"))
    orders.withColumn("n", row_number().over(newest)).where("n = 1 AND op <> 'delete'")      # the table at the mark

The driver reads manifests, tasks read data files and their schemas. The URI goes to Spark in an option that it redacts.
"""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from cdc_core.errors import ConfigError
from cdc_core.readback.reader import ChangeReader
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import TableSchema
from cdc_core.spark.column_types import cast, common_type, type_of
from cdc_core.stored_history import StoredFile
from cdc_core.timestamp import Timestamp

__all__ = ["changes"]

_OPTION = "cdc.secret.changes"
"""Spark redacts options whose name holds 'secret'."""
_TASK_BYTES = 32 * 1024 * 1024
"""Files of a task together have about this size, unless there are fewer tasks than Spark can run at a time."""
_BATCH_ROWS = 10_000
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
    as_text: Collection[str] = (),
) -> DataFrame:
    """Return every row of *table* with *after* < `updated` <= the newest mark that is not above *upto*, once.

    Columns are `op` (insert, update, delete or scan; insert where the files do not tell which of the others) and
    `updated` (text that sorts as time does), both with *prefix* before their names, then those of the table: of its
    newest version, then those that only older versions have. A deleted row has its key and nulls. Decimals of a
    declared precision of up to 38 digits are Spark decimals; times of day, arrays, JSON, intervals and all else that
    Arrow holds as text are text. A column whose type differs between versions has the type that takes both, text if
    need be, as are the columns *as_text*: for decimals it is the way to NaN, which Spark has no decimal for.

    *after* is a mark, or zero for the beginning, as `ChangeReader.read` has it; when nothing has come since, there are
    no rows, and the columns are those of the newest version.

    The rows have no order; those of a key have it by `updated`. The mark is fixed when this is called. Raises: as
    `ChangeReader`; ConfigError when there is no file of the table, it has a column named like one of the two, or none
    of those *as_text*.
    """
    with ChangeReader(uri, changefeed=changefeed) as reader:
        mark = reader.newest(upto)
        files = list(reader.files(table=table, upto=mark, after=after))
        last = None if files else reader.latest_file(table, upto=mark)
        known = files if last is None else [last]
        versions = {path: reader.shape(file).schema for path, file in {f.schema_path: f for f in known}.items()}
    target = _target(sorted(versions.values(), key=lambda schema: schema.version), prefix=prefix, as_text=as_text)
    shares = _shares(files, tasks=max(1, spark.sparkContext.defaultParallelism))
    wanted = _Wanted(uri=uri, changefeed=changefeed, upto=mark, after=after, target=target, shares=shares)
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
    """What `changes` has found to be read: tasks look at no manifest."""

    uri: str
    changefeed: str
    upto: Timestamp
    after: Timestamp
    target: pa.Schema
    """The columns that all tasks give."""
    shares: tuple[tuple[StoredFile, ...], ...]
    """The files of each task."""

    def to_option(self) -> str:
        return base64.b64encode(zlib.compress(pickle.dumps(self))).decode()

    @classmethod
    def from_option(cls, text: str) -> Self:
        wanted: Self = pickle.loads(zlib.decompress(base64.b64decode(text)))
        return wanted


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, files: Sequence[StoredFile]) -> None:
        super().__init__(None)
        self.files = tuple(files)


class ChangesSource(DataSource):
    """Format `cdc_changes`. Its one option is what `changes` was asked for."""

    @classmethod
    def name(cls) -> str:
        return "cdc_changes"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return ChangesReader(_Wanted.from_option(self.options[_OPTION]))


class ChangesReader(DataSourceReader):
    """Gives each task its files, and reads them there."""

    def __init__(self, wanted: _Wanted) -> None:
        self._partitions = [FilesPartition(share) for share in wanted.shares or [()]]  # of none Spark makes one itself
        self._wanted = replace(wanted, shares=())  # which goes to every task

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        wanted = self._wanted
        with ChangeReader(wanted.uri, changefeed=wanted.changefeed) as reader:
            for file in partition.files:
                rows = reader.rows(file, upto=wanted.upto, after=wanted.after)
                for offset in range(0, len(rows), _BATCH_ROWS):
                    yield _columns(rows.slice(offset, _BATCH_ROWS), wanted.target, path=file.path)


def _shares(files: Sequence[StoredFile], *, tasks: int) -> tuple[tuple[StoredFile, ...], ...]:
    """Return *files* dealt out to *tasks* or more, each with about as many bytes."""
    share = min(_TASK_BYTES, sum(file.bytes for file in files) // tasks + 1)
    dealt: list[list[StoredFile]] = []
    left = 0
    for file in files:
        if left <= 0:
            dealt.append([])
            left = share
        dealt[-1].append(file)
        left -= file.bytes
    return tuple(map(tuple, dealt))


def _target(versions: Sequence[TableSchema], *, prefix: str, as_text: Collection[str] = ()) -> pa.Schema:
    """Return the columns of rows of all *versions*, of which the last is the newest."""
    metadata = [pa.field(f"{prefix}op", pa.string()), pa.field(f"{prefix}updated", pa.string())]
    types: dict[str, pa.DataType] = {}
    for schema in reversed(versions):
        for column in schema.columns:
            type_ = type_of(column.type)
            types[column.name] = common_type(types.get(column.name, type_), type_)
    unknown = min(set(as_text) - types.keys(), default=None)
    if unknown is not None:
        raise ConfigError(f"table {versions[-1].name} has no column '{unknown}' that could be given as text")
    types |= dict.fromkeys(as_text, pa.string())
    for field in metadata:
        if field.name in types:
            raise ConfigError(
                f"table {versions[-1].name} has a column '{field.name}' of its own: give a prefix, such as '__cdc_',"
                " for the columns op and updated"
            )
    return pa.schema([*metadata, *(pa.field(name, type_) for name, type_ in types.items())])


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
            arrays.append(pa.nulls(len(rows), field.type) if values is None else cast(values, field.type))
        except pa.ArrowInvalid as error:
            raise ConfigError(
                f"column {field.name} of table {rows.schema.name} in file {path} has a value that {field.type} does not"
                f" have ({error}): read it as text, by as_text=['{field.name}']"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=target)
