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
    """Checks and prepares where a sink writes to. Driver and `cdc check`, and `check` on every executor of a cluster.

    One instance serves a few calls, then `close`. Constructors store values and connect to nothing. Only `check` must
    be written.
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Return when the destination is reachable and writable. Raises: ConfigError, in seconds.

        Changes nothing, not even for a moment. What `prepare` creates need not exist yet. What the sink's own package
        logs at INFO, `cdc check` shows as notes.
        """

    def prepare(self) -> None:  # noqa: B027 (has a default)
        """Return when the destination can take rows: create what the options allow, and keep what exists.

        Once a run, after `check` and before any slice. Options that decide where keys go, such as a number of
        partitions, must not change between runs: store them at the destination, and let `check` refuse another value.
        By default nothing needs to be created. Raises: ConfigError, RetryableSinkError.
        """

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return what tells each place that holds rows from another of the same name, such as a topic's id; None if it
        does not exist.

        By its name in messages, such as "topic 'orders'". *topics* are those that a query has given to rows so far. The
        engine saves it with the progress; when one has changed, the run ends with an error, and the next one accepts
        what is there. Leave out what cannot be told now. By default there is nothing to tell.
        """
        return {}

    def local_directory(self) -> Path | None:
        """Return the directory of this host's file system in which the sink writes; by default None: it is a server.

        On a cluster every host that runs tasks must see the same directory at this path: if you do not declare it, rows
        are lost without an error. The engine checks it with a file `.cdc-probe-…` in the directory, which it may
        create, while a changefeed runs; so return one in which the file disturbs no reader. Connects to nothing.
        """
        return None

    def topic(self, table: TableName) -> str:
        """Return the topic that rows of *table* go to, as the destination names it. Connects to nothing.

        Encoders register schemas by it. A sink with a prefix or names of its own overrides this, uses the same names in
        its other parts, and refuses in `check` two tables of one topic, unless the user asks for that. By default the
        names of `context.topics()`, of which the engine sees that they differ.
        """
        return self.context.topics().of(table)

    def topic_of(self, rows: RowBatch) -> str:
        """Return the topic of *rows*, all of which have the same: `RowBatch.topic`, otherwise that of their table.

        By default the former as a query gave it. A sink that `routes` and changes topics or has a prefix overrides it.
        """
        topic = rows.topic
        return self.topic(rows.schema.name) if topic is None else topic

    def payload(self, schema: TableSchema) -> TableSchema:
        """Return the shape in which rows of *schema* reach the encoder: another only if the sink removes columns first.

        Connects to nothing. Raises: ConfigError when the options ask for a column that the table does not have.
        """
        return schema

    def preview(self, rows: RowBatch) -> MessageBatch:
        """Return the messages that `Sink.emit` would send for *rows*, of one table, for `cdc preview`.

        A sink of messages that adds headers or messages, or removes columns, overrides this. By default what the
        encoder gives for `topic_of`. Connects to nothing of the sink's. Raises: EncodeError.
        """
        return self.context.encoder.encode(rows, topic=self.topic_of(rows))

    def longest_call_s(self) -> float:
        """Return for how many seconds an `emit` or `flush` that has begun may still write. Connects to nothing.

        A node that takes a changefeed over from one that did not end cleanly waits this long while a scan is in
        progress or after a move, so that no call of the earlier node delivers an old version of a row after a newer
        one. Compute it from the time limits of your client. A call inside `SinkContext.repeating` counts only up to its
        next repetition, which ends it. Return 0 if readers see late rows where they belong, such as in files whose
        names sort by epoch. By default a minute.
        """
        return 60.0

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice."""
