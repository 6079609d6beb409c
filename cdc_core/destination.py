"""The part of a sink that runs in control processes before any row: is the destination usable, and is it ready?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path

from cdc_core.messages import MessageBatch
from cdc_core.rows import RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.sink_context import SinkContext


class Destination(ABC):
    """Checks and prepares the place that a sink writes to, for the driver and `cdc check`.

    On a cluster, `check` is also called on every executor. An instance gets a few calls, and then `close`. Constructors
    store values and connect to nothing. You must write only `check`.
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Check that the destination is reachable and writable. Raises: ConfigError, within seconds.

        Changes nothing, not even temporarily. What `prepare` creates need not exist yet. `cdc check` shows what the
        sink's package logs at INFO as notes.
        """

    def prepare(self) -> None:  # noqa: B027 (has a default)
        """Make the destination ready for rows: create what the options allow, and keep what exists.

        Called once per run, after `check` and before any slice. Options that decide where keys go, such as a number of
        partitions, must not change between runs: store them at the destination, and let `check` refuse a different
        value. By default, nothing is created. Raises: ConfigError, RetryableSinkError.
        """

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return, for each place that holds rows, what distinguishes it from another place of the same name, such as a
        topic's id; None for a place that does not exist.

        The keys name the places as errors do, such as "topic 'orders'". *topics* are those that a query has given to
        rows so far. The engine saves the result with the progress. If an entry has changed, the run ends with an error,
        and the next run accepts what is there. Leave out what you cannot find out now. By default, the result is empty.
        """
        return {}

    def local_directory(self) -> Path | None:
        """Return the directory of this host's file system that the sink writes to; None, the default, for a server.

        On a cluster, every host that runs tasks must see the same directory at this path: if you do not declare it,
        rows are lost without an error. To check this, the engine puts a file `.cdc-probe-…` into the directory while a
        changefeed runs, and creates the directory if necessary; so return a directory where this file does not disturb
        readers. Connects to nothing.
        """
        return None

    def topic(self, table: TableName) -> str:
        """Return the topic that rows of *table* go to, as the destination names it. Connects to nothing.

        Encoders register schemas under this name. A sink with a prefix or with its own names overrides this method and
        uses the same names in its other parts. Its `check` refuses two tables with one topic, unless the user requests
        this. By default, the name is that of `context.topics()`; the engine then ensures that the names differ.
        """
        return self.context.topics().of(table)

    def topic_of(self, rows: RowBatch) -> str:
        """Return the topic of *rows*, the same for all: `RowBatch.topic`, or the topic of their table if it is None.

        By default, `RowBatch.topic` is used unchanged. A sink that `routes` and changes topics, or has a prefix,
        overrides this.
        """
        topic = rows.topic
        return self.topic(rows.schema.name) if topic is None else topic

    def payload(self, schema: TableSchema) -> TableSchema:
        """Return the shape in which rows of *schema* reach the encoder; it differs only if the sink removes columns.

        Connects to nothing. Raises: ConfigError if the options name a column that the table does not have.
        """
        return schema

    def preview(self, rows: RowBatch) -> MessageBatch:
        """Return the messages that `Sink.emit` would send for *rows*, of one table, for `cdc preview`.

        A sink of messages that adds headers or messages, or removes columns, overrides this. By default, the result is
        what the encoder returns for `topic_of`. Does not connect to the destination. Raises: EncodeError.
        """
        return self.context.encoder.encode(rows, topic=self.topic_of(rows))

    def longest_call_s(self) -> float:
        """Return for how many seconds after its start an `emit` or `flush` may still write. Connects to nothing.

        A node that takes over from a node that did not end cleanly waits this long, while a scan is in progress or
        after a move, so that no call of the earlier node delivers an old version of a row after a newer one. Compute
        the time from the time limits of your client. A call inside `SinkContext.repeating` counts only up to its next
        repetition, which ends it. Return 0 if late rows appear in their right order, such as in files whose names sort
        by epoch. The default is a minute.
        """
        return 60.0

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice."""
