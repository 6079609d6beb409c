"""A changefeed's source and sink as Spark takes them from process to process: an option, and who will read it there.

Spark starts half a dozen processes one after another before the first row, and most of them only pass these classes on.
So this module imports nothing else of the core: what reads and writes is imported where it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from cdc_core.engine.planner import Offset

__all__ = ["OPTION", "SINK", "SOURCE", "ChangefeedSink", "RangefeedSource"]

SOURCE = "cdc_rangefeed"
SINK = "cdc_sink"
OPTION = "cdc.secret.run"
"""Name of the option that carries an `AttemptConfig`. Spark redacts options whose name holds 'secret'."""


class RangefeedSource(DataSource):
    """The rows of an attempt. Whoever opens it says which schema they have."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _Reader(self.options[OPTION])


class ChangefeedSink(DataSource):
    """Where the rows of an attempt go."""

    @classmethod
    def name(cls) -> str:
        return SINK

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        return _Writer(self.options[OPTION])


class _Reader(DataSourceStreamReader):
    """Does what `cdc_core.spark.source` does for the attempt in *option*."""

    def __init__(self, option: str) -> None:
        self._option = option

    @cached_property
    def _opened(self) -> DataSourceStreamReader:
        from cdc_core.spark.source import open_reader

        return open_reader(self._option)

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._opened.initialOffset()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        return self._opened.latestOffset(start, limit)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._opened.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._opened.read(partition)

    def stop(self) -> None:
        self._opened.stop()


class _Writer(DataSourceStreamArrowWriter):
    """Does what `cdc_core.spark.writer` does for the attempt in *option*."""

    def __init__(self, option: str) -> None:
        self._option = option

    @cached_property
    def _opened(self) -> DataSourceStreamArrowWriter:
        from cdc_core.spark.writer import open_writer

        return open_writer(self._option)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._opened.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._opened.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._opened.abort(messages, batchId)
