"""A query without rows, so that no changefeed is the first to pay for what Spark and its Python processes load once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from cdc_core.engine.packing import IDLE, SCHEMA, note
from cdc_core.spark.private_api import forget_secret, is_connected
from cdc_core.spark.session import close_session, open_session

_LIMIT_S = 60.0
_WAIT_S = 0.2


def preload(session: SparkSession, scratch: Path, *, tasks: int, stopped: Callable[[], bool]) -> None:
    """Run a step of so many *tasks*, with all kinds of processes that a changefeed has. *scratch* is for Spark's files.

    *session* must be the active one of this thread.

    Return when it has ended, when *stopped* becomes true, or after a minute: a cluster may have no executor yet.
    Raises: Spark's error.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    session.dataSource.register(PreloadSource)
    rows = session.readStream.format(PreloadSource.name()).option("tasks", str(tasks)).load()
    writer = rows.writeStream.format(PreloadSource.name()).outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"file://{scratch.absolute()}").start()
    deadline = time.monotonic() + _LIMIT_S
    try:
        while not query.awaitTermination(_WAIT_S):  # type: ignore[arg-type]
            if stopped() or time.monotonic() > deadline:
                query.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def preload_jvm(log_path: Path) -> None:
    """Start a JVM, run a step in it, and leave it without a session: a later session of this process uses it.

    The JVM has our own settings. It keeps *log_path* open for its output, wherever that file is moved to.
    Raises: as `open_session`; Spark's error.
    """
    session = open_session("spare", {"master": "local[1]"}, log_path=log_path)
    preload(session, log_path.with_suffix(".preload"), tasks=1, stopped=lambda: False)
    close_session(session)
    if is_connected():  # a JVM that had to save its classes may have ended
        forget_secret()


class PreloadSource(DataSource):
    """Format `cdc_preload`, source and sink of one step. Its one option is the number of tasks."""

    @classmethod
    def name(cls) -> str:
        return "cdc_preload"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _Reader(int(self.options["tasks"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        return _Writer()


class _Reader(DataSourceStreamReader):
    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"step": -1}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"step": 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield note(IDLE, {})


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
