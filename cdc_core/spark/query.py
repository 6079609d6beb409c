"""One attempt of a run as a Spark streaming query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.packing import SPARK_SCHEMA
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import from_wire
from cdc_core.queries.bound_query import BoundQuery
from cdc_core.spark.columns import spark_schema
from cdc_core.spark.data_sources import OPTION, SINK, SOURCE
from cdc_core.spark.query_planning import evaluated
from cdc_core.spark.session import is_local
from cdc_core.spark.start_sessions import StartSessions
from cdc_core.spark.start_turns import Turn

__all__ = ["RunningQuery", "start_query", "warm_up"]


def start_query(sessions: StartSessions, config: AttemptConfig) -> StreamingQuery:
    """Start the changefeed of *config* from its start token. Spark's checkpoint lives in the run's directory.

    Its tasks are in a pool of the changefeed's: pools share the slots of a cluster fairly.
    """
    with sessions.lent(evaluates=bool(config.plans)) as session:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", config.feed.name)  # of this thread
        rows = _open_rows(session, config.to_option(), [plan.query for plan in config.plans])
        if config.plans and not config.warm_up:
            rows = evaluated(rows, config.plans)
        writer = rows.writeStream.format(SINK).option(OPTION, config.to_option()).outputMode("append")
        trigger = {"availableNow": True} if config.warm_up else {"processingTime": "0 seconds"}
        checkpoint = config.run_dir / ("warm-up" if config.warm_up else "checkpoint")
        # Without a scheme it would be in the file system that Hadoop's configuration names.
        return writer.option("checkpointLocation", f"file://{checkpoint}").trigger(**trigger).start()


def _open_rows(session: SparkSession, option: str, queries: Sequence[BoundQuery]) -> DataFrame:
    """Return the streaming rows of the attempt with the *option*, in the packed layout, or that of columns."""
    reader = session.readStream.format(SOURCE).option(OPTION, option)
    return reader.schema(spark_schema(queries) if queries else SPARK_SCHEMA).load()


def warm_up(sessions: StartSessions, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
    """Return when tasks are known to be able to load what they need. Nothing has been created at the source yet.

    On one host this process loads it, as the tasks have the same installation. On a cluster a step without rows runs;
    this returns earlier when *stopped* becomes true. Raises: the CdcError of one of our processes, otherwise Spark's
    error, or that of a plugin.
    """
    if is_local(config.feed.spark):
        config.load()
        return
    query = start_query(sessions, config)
    try:
        while not query.awaitTermination(1):
            if stopped():
                query.stop()
                return
    except PySparkException as error:
        raise from_wire(str(error)) or error from None


class RunningQuery:
    """A streaming query, as a supervisor knows it: see `cdc_core.engine.query_host.Query`."""

    def __init__(self, query: StreamingQuery, run_dir: Path, turn: Turn) -> None:
        """*turn* ends with the first step that is saved in *run_dir*, or with the query."""
        self._query = query
        self._channel = AttemptChannel(run_dir)
        self._turn: Turn | None = turn

    @property
    def is_active(self) -> bool:
        active = self._query.isActive
        if not active or (self._turn is not None and self._channel.saved() is not None):
            self._end_turn()
        return active

    def failure(self) -> Exception:
        error = self._query.exception()
        if error is None:  # it was not stopped by this process: the Spark context is shutting down
            return QueryHostError("Spark ended the streaming query without an error")
        return from_wire(str(error)) or QueryHostError(f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        self._end_turn()
        self._query.stop()

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()
