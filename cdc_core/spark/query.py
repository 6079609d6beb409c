"""One attempt of a run as a Spark streaming query."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc_core.engine.attempt_config import OPTION, AttemptConfig
from cdc_core.errors import CdcError, RetryableError, from_wire

__all__ = ["failure_of", "start_query", "warm_up"]


def start_query(session: SparkSession, config: AttemptConfig) -> StreamingQuery:
    """Start the changefeed of *config* from its start token. Spark's checkpoint lives in the run's directory."""
    rows = session.readStream.format("cdc_rangefeed").option(OPTION, config.to_option()).load()
    writer = rows.writeStream.format("cdc_sink").option(OPTION, config.to_option()).outputMode("append")
    trigger = {"availableNow": True} if config.warm_up else {"processingTime": "0 seconds"}
    checkpoint = config.run_dir / ("warm-up" if config.warm_up else "checkpoint")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def warm_up(session: SparkSession, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
    """Run one step without rows, so that processes, imports and generated code are ready before the first row.

    Return earlier when *stopped* becomes true. Raises: the CdcError of one of our processes, otherwise Spark's error.
    """
    query = start_query(session, config)
    try:
        while not query.awaitTermination(1):
            if stopped():
                query.stop()
                return
    except PySparkException as error:
        raise from_wire(str(error)) or error from None


def failure_of(query: StreamingQuery) -> CdcError | PySparkException:
    """Return why *query* ended: the CdcError of one of our processes, otherwise Spark's error."""
    error = query.exception()
    if error is None:  # it was not stopped by this process: the Spark context is shutting down
        return RetryableError("Spark ended the streaming query without an error")
    return from_wire(str(error)) or error
