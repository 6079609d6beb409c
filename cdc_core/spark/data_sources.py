"""An attempt as a streaming source and sink of Spark. No rule of the domain lives here.

Spark starts half a dozen processes one after another before the first row, and most of them only pass these classes on.
So this module imports nothing else of the core: what an attempt does is imported where it does it. Spark builds the
reader again in each process: in the planner's for offsets and partitions, once more to pickle `read`, and in workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark import TaskContext
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

    from cdc_core.engine.attempt import Attempt, Task
    from cdc_core.engine.planner import Offset
    from cdc_core.engine.slices import TaskMessage

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
        return AttemptReader(self.options[OPTION])


class ChangefeedSink(DataSource):
    """Where the rows of an attempt go."""

    @classmethod
    def name(cls) -> str:
        return SINK

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        return AttemptWriter(self.options[OPTION])


class _InProcess:
    """The attempt in *option*, in this process."""

    def __init__(self, option: str) -> None:
        self._option = option

    @cached_property
    def attempt(self) -> Attempt:
        from cdc_core.engine.attempt import open_attempt

        return open_attempt(self._option)


class _Partition(InputPartition):
    """A task on its way to an executor."""

    def __init__(self, number: int, task: Task) -> None:
        super().__init__(number)
        self.number = number
        self.task = task


@dataclass
class _Message(WriterCommitMessage):
    """What a task says, on its way to the coordinator."""

    sent: TaskMessage


class AttemptReader(_InProcess, DataSourceStreamReader):
    """Plans steps in the planner's process and reads slices on executors."""

    def initialOffset(self) -> Offset:  # noqa: N802
        return self.attempt.first_offset

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        return self.attempt.next_offset(start)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [_Partition(number, task) for number, task in enumerate(self.attempt.tasks(start, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from cdc_core.spark.query_layout import read

        assert isinstance(partition, _Partition)
        return read(self.attempt, partition.number, partition.task)

    def stop(self) -> None:
        self.attempt.close()


class AttemptWriter(_InProcess, DataSourceStreamArrowWriter):
    """Writes slices on executors; `commit` is the coordinator's turn."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from cdc_core.spark.query_layout import arriving

        context = TaskContext.get()
        task_attempt = 0 if context is None else int(context.attemptNumber())
        return _Message(self.attempt.write(arriving(self.attempt, iterator), task_attempt=task_attempt))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self.attempt.commit([message.sent if isinstance(message, _Message) else None for message in messages])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Undo nothing: siblings may still write, and flushed rows may be there twice."""
