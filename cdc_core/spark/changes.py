"""The files of a changefeed as a Spark DataFrame: every row once, read in parallel.

    from cdc_core.spark.changes import changes

    orders = changes(spark, "s3://bucket/out?AUTH=implicit", table="public.orders")
    newest = Window.partitionBy("id").orderBy(desc("updated"))
    orders.withColumn("n", row_number().over(newest)).where("n = 1 AND op <> 'delete'")      # the table at the mark

The driver reads manifests; tasks read data files and their schemas. Spark gets the URI in an option that it redacts.
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
from cdc_core.rows import Op, RowBatch, fields_by_name
from cdc_core.schema import TableSchema
from cdc_core.spark.column_types import cast, common_type, type_of
from cdc_core.stored_history import StoredFile
from cdc_core.timestamp import Timestamp
from cdc_core.unavailable import unavailable_by_column

_OPTION = "cdc.secret.changes"
"""Spark redacts options with 'secret' in their names."""
_TASK_BYTES = 32 * 1024 * 1024
"""The files of a task have about this size in all, or less when Spark could run more tasks at the same time."""
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
    """Return, once each, all rows of *table* with *after* < `updated` <= the newest mark that is not above *upto*.

    The first columns are `op` (insert, update, delete or scan; insert where the files do not distinguish insert, update
    and scan) and `updated` (text that sorts as time does), both with *prefix* before their names. Then come the columns
    of the newest version of the table, then those that only older versions have. A deleted row has its key and nulls.

    Decimals with a declared precision of up to 38 digits are Spark decimals. Times of day, arrays, JSON, intervals and
    everything else that Arrow holds as text are text. A column whose type differs between versions has a type that can
    hold the values of both, or text. The columns *as_text* are text too, which is how to read a decimal column with
    NaN: Spark's decimals have no NaN.

    *after* is a mark, or zero for the beginning, as in `ChangeReader.read`. When no rows have come since, the result is
    empty and has the columns of the newest version.

    A row that lacks a value, which the source did not know, ends the query with a ConfigError: a null would be wrong.
    `ChangeReader` names such values in the column `unavailable`.

    The rows are not ordered; `updated` gives the order of the rows of a key. The mark is fixed at the time of the call.
    Raises: as `ChangeReader`; ConfigError when there is no file of the table, when the table has a column with the name
    of one of the first two, or when it has no column that *as_text* names.
    """
    with ChangeReader(uri, changefeed=changefeed) as reader:
        mark = reader.newest(upto)
        files = list(reader.files(table=table, upto=mark, after=after))
        last = None if files else reader.latest_file(table, upto=mark)
        known = files if last is None else [last]
        versions = {path: reader.shape(file).schema for path, file in {f.schema_path: f for f in known}.items()}
    target = _target(sorted(versions.values(), key=lambda schema: schema.version), prefix=prefix, as_text=as_text)
    shares = _shares(files, tasks=max(1, spark.sparkContext.defaultParallelism))
    request = _Request(uri=uri, changefeed=changefeed, upto=mark, after=after, target=target, shares=shares)
    if spark not in _registered:  # Spark warns when a source is registered twice
        spark.dataSource.register(ChangesSource)
        _registered.add(spark)
    return (
        spark.read.format(ChangesSource.name())
        .schema(from_arrow_schema(target))
        .option(_OPTION, request.to_option())
        .load()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What tasks have to read. They read no manifests themselves."""

    uri: str
    changefeed: str
    upto: Timestamp
    after: Timestamp
    target: pa.Schema
    """The columns of the result."""
    shares: tuple[tuple[StoredFile, ...], ...]
    """The files of each task."""

    def to_option(self) -> str:
        return base64.b64encode(zlib.compress(pickle.dumps(self))).decode()

    @classmethod
    def from_option(cls, text: str) -> Self:
        request: Self = pickle.loads(zlib.decompress(base64.b64decode(text)))
        return request


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, files: Sequence[StoredFile]) -> None:
        super().__init__(None)
        self.files = tuple(files)


class ChangesSource(DataSource):
    """Format `cdc_changes`. Its only option is a `_Request`."""

    @classmethod
    def name(cls) -> str:
        return "cdc_changes"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return ChangesReader(_Request.from_option(self.options[_OPTION]))


class ChangesReader(DataSourceReader):
    """Distributes the files to tasks, and reads them there."""

    def __init__(self, request: _Request) -> None:
        self._partitions = [
            FilesPartition(share) for share in request.shares or [()]
        ]  # without a partition Spark adds one of its own
        self._request = replace(request, shares=())  # goes to every task

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        request = self._request
        with ChangeReader(request.uri, changefeed=request.changefeed) as reader:
            for file in partition.files:
                rows = reader.rows(file, upto=request.upto, after=request.after)
                for offset in range(0, len(rows), _BATCH_ROWS):
                    yield _columns(rows.slice(offset, _BATCH_ROWS), request.target, path=file.path)


def _shares(files: Sequence[StoredFile], *, tasks: int) -> tuple[tuple[StoredFile, ...], ...]:
    """Return *files* in shares of about equal size, for *tasks* tasks or more."""
    share_bytes = min(_TASK_BYTES, sum(file.bytes for file in files) // tasks + 1)
    shares: list[list[StoredFile]] = []
    left = 0
    for file in files:
        if left <= 0:
            shares.append([])
            left = share_bytes
        shares[-1].append(file)
        left -= file.bytes
    return tuple(map(tuple, shares))


def _target(versions: Sequence[TableSchema], *, prefix: str, as_text: Collection[str] = ()) -> pa.Schema:
    """Return the columns of the result for rows of all *versions*, the newest last."""
    metadata = [pa.field(f"{prefix}op", pa.string()), pa.field(f"{prefix}updated", pa.string())]
    types: dict[str, pa.DataType] = {}
    for schema in reversed(versions):
        for column in schema.columns:
            type_ = type_of(column.type)
            types[column.name] = common_type(types.get(column.name, type_), type_)
    unknown = min(set(as_text) - types.keys(), default=None)
    if unknown is not None:
        raise ConfigError(f"table {versions[-1].name} has no column '{unknown}', which as_text names")
    types |= dict.fromkeys(as_text, pa.string())
    for field in metadata:
        if field.name in types:
            raise ConfigError(
                f"table {versions[-1].name} has its own column '{field.name}'. Set a prefix for the columns op and"
                " updated, such as prefix='__cdc_'"
            )
    return pa.schema([*metadata, *(pa.field(name, type_) for name, type_ in types.items())])


def _columns(rows: RowBatch, target: pa.Schema, *, path: str) -> pa.RecordBatch:
    """Return *rows* in the columns of *target*. Raises: ConfigError when a row lacks values: they are not nulls."""
    for name in unavailable_by_column(rows):
        raise ConfigError(
            f"column {name} of table {rows.schema.name} is unavailable in rows of file {path}, because updates left a"
            " large value unchanged, and a DataFrame would have nulls there. Read the files with ChangeReader, which"
            f" lists unavailable columns. For later rows, run ALTER TABLE {rows.schema.name} REPLICA IDENTITY FULL"
        )
    after, key = rows.column("after"), rows.column("key")
    images = fields_by_name(after)
    if after.null_count and not rows.schema.key:
        for name, values in fields_by_name(key).items():
            images[name] = pc.coalesce(images[name], values)
    wall, logical = rows.column("updated").flatten()
    digits = pc.utf8_lpad(logical.cast(pa.string()), 10, "0")
    arrays = [_OPS.take(rows.column("op")), pc.binary_join_element_wise(wall.cast(pa.string()), digits, ".")]
    for field in list(target)[len(arrays) :]:
        values = images.get(field.name)
        try:
            arrays.append(pa.nulls(len(rows), field.type) if values is None else cast(values, field.type))
        except pa.ArrowInvalid as error:
            raise ConfigError(
                f"column {field.name} of table {rows.schema.name} in file {path} has a value that {field.type} cannot"
                f" hold ({error}). Read it as text, with as_text=['{field.name}']"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=target)
