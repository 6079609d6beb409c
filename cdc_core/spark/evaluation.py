"""What a changefeed selects, evaluated over batches of rows in the driver of a local Spark."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import pyarrow as pa

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.packing import ROWS, Arriving
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.envelope import DeleteForm
from cdc_core.errors import ConfigError
from cdc_core.queries.bound_query import BoundQuery, delivered_rows
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.spark.columns import columns_schema, noted, packed_columns, query_for
from cdc_core.spark.evaluated_rows import opened
from cdc_core.spark.host import SparkHost
from cdc_core.spark.private_api import active_context

_NAME = "watch"


class _SharedHost:
    """The host of all evaluations of this process: Spark has one JVM in a process. Used by any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._host: SparkHost | None = None
        self._directory: TemporaryDirectory[str] | None = None
        self._users: set[str] = set()

    def of(self, user: str) -> SparkHost:
        """Return the host, which *user* may hold until `release`. Raises: ConfigError."""
        with self._lock:
            if self._host is None:
                directory = TemporaryDirectory(prefix="cdc-watch-", ignore_cleanup_errors=True)
                self._host = SparkHost(_NAME, {}, state_dir=Path(directory.name), temporary=True)
                self._directory = directory
            self._users.add(user)
            return self._host

    def acquire(self, user: str) -> None:
        """Open the session for *user* unless it is open. Raises: ConfigError when the process has another one."""
        with self._lock:
            assert self._host is not None
            active = active_context()
            if active is not None and not self._host.owns(active):
                raise ConfigError(
                    "this process already has a Spark session, which would be stopped when this query ends; stop that"
                    " session first, or watch the query in another process"
                )
            self._host.acquire(user)

    def release(self, user: str) -> None:
        """End the session unless another user holds it; with the last user, nothing remains. May be called twice."""
        with self._lock:
            if self._host is None:
                return
            self._host.release(user)
            self._users.discard(user)
            if not self._users and self._directory is not None:
                self._directory.cleanup()
                self._host = self._directory = None


_shared = _SharedHost()


class SparkEvaluation:
    """See `cdc_core.engine.temporary_run.Evaluation`. Spark starts when it has to plan something, and ends with the
    last evaluation of this process that uses it.

    Raises: ConfigError when there is no Java that Spark can run on; with the first plan, when this process has a Spark
    session of its own.
    """

    def __init__(self, feed: ResolvedChangefeed) -> None:
        self._user = f"{_NAME}-{secrets.token_hex(6)}"
        self._host = _shared.of(self._user)
        self._queries = PlannedQueries(feed, self._host, acquire=lambda: _shared.acquire(self._user))
        self._selects, self._mask_key = feed.queries().selects, feed.mask_key
        self._deletes_as_rows = feed.envelope().delete is DeleteForm.KEY_AND_NULLS

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        return self._queries.delivered(schemas)

    def of(self, rows: RowBatch) -> Iterator[Arriving]:
        query = self._query_of(rows)
        if query is None:
            yield ROWS, rows
            return
        plans = self._queries.plans([rows.schema])
        queries = [plan.query for plan in plans]
        schema, key = columns_schema(queries), self._mask_key
        as_rows = self._deletes_as_rows
        packing = packed_columns(rows, queries=queries, schema=schema, mask_key=key, deletes_as_rows=as_rows)
        packed = [noted(each, schema) for each in packing]
        if not packed:
            return
        batches: Sequence[pa.RecordBatch] = packed
        if query.by_spark:
            batches = self._host.evaluate(pa.Table.from_batches(packed, schema), plans)
        yield from opened(batches, plans, deletes_as_rows=as_rows)

    def shown(self, rows: RowBatch) -> RowBatch:
        return self._delivered(rows, self._query_of(rows))

    def _query_of(self, rows: RowBatch) -> BoundQuery | None:
        if not self._selects(rows.schema.name):
            return None
        return query_for(rows, [plan.query for plan in self._queries.plans([rows.schema])])

    def _delivered(self, rows: RowBatch, query: BoundQuery | None) -> RowBatch:
        if query is None or not query.section:
            return rows
        return delivered_rows(rows, query, key=self._mask_key)

    def close(self) -> None:
        _shared.release(self._user)
