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
    """Checks and prepares where a sink writes to. Driver and `cdc check`; one instance for a few calls, then `close`.
    On a cluster every executor calls `check` as well.

    Constructors have no side effects and connect to nothing. A destination must write `check`; everything else has a
    default.
    """

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    @abstractmethod
    def check(self) -> None:
        """Return when the destination is reachable and writable. Changes nothing. Raises: ConfigError, in seconds."""

    def prepare(self) -> None:  # noqa: B027 (has a default)
        """Return when the destination can take rows: create there what the options allow to be created.

        Called once a run, after `check` and before any slice. What an earlier run prepared is there already. By default
        nothing needs to be created. Raises: ConfigError, RetryableSinkError.
        """

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return what tells each place that holds rows from another one of the same name; None if it does not exist.

        By its name in messages, such as "topic 'orders'". *topics* are those that a query has given to rows so far. The
        changefeed ends with an error when one has changed since it was asked before. Leave out what cannot be told now.
        By default there is nothing to tell.
        """
        return {}

    def local_directory(self) -> Path | None:
        """Return the directory of this host's file system in which the sink writes; by default None: there is no such.

        On a cluster every host that runs tasks must see the same directory at this path, or rows would be lost. The
        engine sees to it with a file `.cdc-probe-…` in the directory, which it may create, while a changefeed runs; so
        return one in which such a file disturbs no reader. Connects to nothing.
        """
        return None

    def topic(self, table: TableName) -> str:
        """Return the topic that rows of *table* go to, as the destination names it. Connects to nothing.

        By default the table's name, or its full name with the option full_table_name. A sink with names of its own
        overrides this and uses the same names in `Sink.emit` and `ResolvedSink.emit_resolved`.
        """
        return self.context.topics().of(table)

    def topic_of(self, rows: RowBatch) -> str:
        """Return the topic of *rows*, all of which have the same: `RowBatch.topic`, otherwise that of their table.

        By default the former as a query gave it. A sink that `routes` and has a prefix of its own overrides this.
        """
        topic = rows.topic
        return self.topic(rows.schema.name) if topic is None else topic

    def payload(self, schema: TableSchema) -> TableSchema:
        """Return the shape in which rows of *schema* reach the encoder. By default the same.

        For a sink that removes columns before it encodes. Connects to nothing. Raises: ConfigError when the options
        ask for a column that the table does not have.
        """
        return schema

    def preview(self, rows: RowBatch) -> MessageBatch:
        """Return the messages that the sink would send for *rows*, of one table. Connects to nothing of the sink's.

        For `cdc preview`, of a sink that asks for messages. By default what the encoder gives, for `topic_of`. A sink
        that adds headers or messages, or removes columns, overrides this. Raises: EncodeError.
        """
        return self.context.encoder.encode(rows, topic=self.topic_of(rows))

    def longest_call_s(self) -> float:
        """Return for how many seconds an `emit` or `flush` that has begun may still write. Connects to nothing.

        Asked on a node that takes a changefeed over from one that did not end cleanly. While a scan is in progress,
        or after a move, it waits this long, so that no call of the earlier node delivers an old version of a row after
        a newer one. Then every call must have returned or raised, if the destination serves it at all or the sink gives
        up. A call that is inside `SinkContext.repeating` ends by itself, when it repeats the next time. By default a
        minute. 0 is for a sink whose readers see late rows where they belong, such as in files whose names sort by
        epoch.
        """
        return 60.0

    def close(self) -> None:  # noqa: B027 (has a default)
        """Release connections. May be called twice."""
