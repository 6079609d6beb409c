"""The part of the cloud-storage sink that runs in control processes: it checks the directory or bucket."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

from cdc_core import ConfigError, Destination, RowBatch, SinkContext, TableName
from cdc_sink_cloudstorage.local import LocalStore
from cdc_sink_cloudstorage.slice_names import Layout
from cdc_sink_cloudstorage.store import Store
from cdc_sink_cloudstorage.uris import store_of


class CloudStorageDestination(Destination):
    """Checks a directory or bucket, and the names that the changefeed would write there."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._layout = Layout.of(context)

    def check(self) -> None:
        """Return when the place is reachable and writable. Changes nothing. Raises: ConfigError.

        Also refuses tables that would share a topic, and names that are too long for the store.
        """
        self._check_names()
        self._store.check()

    def prepare(self) -> None:
        """Create the directory of a `file://` URI unless it exists. Raises: ConfigError."""
        if isinstance(self._store, LocalStore):
            self._store.prepare()

    def identities(self, topics: Collection[str] = ()) -> Mapping[str, str | None]:  # noqa: ARG002
        """Return the identity of a local directory: where it is not mounted, another one takes its place.

        Writers wait for one that is not there at all.
        """
        if not isinstance(self._store, LocalStore):
            return {}
        try:
            there = self._store.in_progress.is_dir()
            return {f"directory '{self._store.root}'": self._store.identity()} if there else {}
        except OSError:
            return {}

    def local_directory(self) -> Path | None:
        """Return the directory of unfinished files of a `file://` URI, None for a store that is a server."""
        return self._store.in_progress if isinstance(self._store, LocalStore) else None

    def longest_call_s(self) -> float:
        """Return 0: a file that an earlier node writes late sorts before those of its successor, by its epoch."""
        return 0.0

    def topic(self, table: TableName) -> str:
        """Return the topic of *table*: the part of a file name that says which table its rows belong to."""
        return self._layout.topics.of(table)

    def topic_of(self, rows: RowBatch) -> str:
        """Return the topic of *rows*: that which a query gave them, with the prefix, otherwise that of their table."""
        return self._layout.topics.of_rows(rows)

    def close(self) -> None:
        """Close connections. May be called twice."""
        if "_store" in self.__dict__:
            self._store.close()

    @cached_property
    def _store(self) -> Store:
        return store_of(self.context)

    def _check_names(self) -> None:
        tables: dict[str, TableName] = {}
        for table in sorted(set(self.context.tables)):
            topic = self.topic(table)
            if topic in tables:
                remedy = self._layout.topics.remedy
                raise ConfigError(
                    f"tables {tables[topic]} and {table} would share the topic '{topic}'."
                    f" {remedy[0].upper()}{remedy[1:]}, or put the tables into separate changefeeds"
                )
            tables[topic] = table
            size, most = self._layout.longest_name_bytes(topic), self._store.max_name_bytes
            if size > most:
                raise ConfigError(
                    f"file names of topic '{topic}' would be {size} bytes long, but the sink allows {most}."
                    " Shorten topic_prefix, or remove full_table_name"
                )
