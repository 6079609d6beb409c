"""One attempt of a run as a Spark streaming query."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.packing import SCHEMA
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import from_wire
from cdc_core.spark.columns import spark_schema
from cdc_core.spark.data_sources import OPTION, SINK, SOURCE, ChangefeedSink, RangefeedSource
from cdc_core.spark.private_api import Py4JError, end_monitors_of_planners, make_active
from cdc_core.spark.query_layout import WRITER
from cdc_core.spark.session_settings import is_local

log = logging.getLogger(__name__)

_WARM_UPS = 3
_LATE_WORKER = "Python worker failed to connect back"
"""Spark waits ten seconds for it, whatever its settings."""
_FETCH_FAILURE = re.compile(r"FetchFailedException: *(\S[^\n]*)")
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_WORKER_DEATH = re.compile(r"\((\S+) executor \S+\): [^\n]*Python worker exited unexpectedly")
_TRACEBACK = re.compile(r"^( *)Traceback \(most recent call last\):$", re.MULTILINE)


def start_query(sessions: StartSessions, config: AttemptConfig) -> StreamingQuery:
    """Start the changefeed of *config* from its start token. Spark's checkpoint lives in the run's directory.

    Its tasks are in a pool of the changefeed's: pools share the slots of a cluster fairly.
    """
    with suppress(Py4JError):  # of another Spark: it keeps a third of a megabyte for each query
        end_monitors_of_planners()
    with sessions.lent(evaluates=config.evaluates) as session:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", config.feed.name)  # of this thread
        rows = _open_rows(session, config)
        if config.evaluates and not config.warm_up:
            from cdc_core.spark.query_planning import evaluated  # loads the parser

            rows = evaluated(rows, config.plans)
        writer = rows.writeStream.format(SINK).option(OPTION, config.to_option()).outputMode("append")
        trigger = {"availableNow": True} if config.warm_up else {"processingTime": "0 seconds"}
        checkpoint = config.run_dir / ("warm-up" if config.warm_up else "checkpoint")
        # Without a scheme it would be in the file system that Hadoop's configuration names.
        return writer.option("checkpointLocation", f"file://{checkpoint}").trigger(**trigger).start()


def _open_rows(session: SparkSession, config: AttemptConfig) -> DataFrame:
    """Return the streaming rows of the attempt, in the packed layout, or that of columns, where they are written.

    The exchange keeps the order: up to 200 partitions, a task adds each row to the file of its partition as it comes,
    and what it has for a partition is read as one block. On one host, a task reads several partitions one after the
    other, so that the changefeed never has more slots than others leave to it.
    """
    queries = [plan.query for plan in config.plans] if config.evaluates else []
    reader = session.readStream.format(SOURCE).option(OPTION, config.to_option())
    schema = spark_schema(queries) if queries else from_arrow_schema(SCHEMA)
    if not config.exchanges:
        return reader.schema(schema).load()
    rows = reader.schema(schema.add(WRITER, IntegerType())).load()
    rows = rows.repartitionById(config.writers, WRITER).drop(WRITER)
    return rows.coalesce(config.feed.parallelism) if is_local(config.feed.spark) else rows


def warm_up(sessions: StartSessions, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
    """Return when tasks are known to be able to load what they need. Nothing has been created at the source yet.

    On one host this process loads it, as the tasks have the same installation. On a cluster a step without rows runs,
    again when a host was too busy for it; this returns earlier when *stopped* becomes true. Raises: the CdcError of one
    of our processes, otherwise Spark's error, or that of a plugin.
    """
    if is_local(config.feed.spark):
        config.load()
        return
    for left in reversed(range(_WARM_UPS)):
        query = start_query(sessions, config)
        try:
            while not query.awaitTermination(1):
                if stopped():
                    query.stop()
                    return
            return
        except PySparkException as error:
            if _LATE_WORKER not in str(error) or not left:
                raise from_wire(str(error)) or error from None
            log.warning("a Python worker of Spark did not start within ten seconds; its host is busy. Trying again")


class RunningQuery:
    """A streaming query, as a supervisor knows it: see `cdc_core.engine.query_host.Query`."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query

    @property
    def is_active(self) -> bool:
        return self._query.isActive

    def failure(self) -> Exception:
        error = self._query.exception()
        if error is None:  # it was not stopped by this process: the Spark context is shutting down
            return QueryHostError("Spark ended the streaming query without an error")
        text = str(error)
        if (cause := from_wire(text)) is not None:
            return cause
        if "FetchFailed" in text:
            reason = _FETCH_FAILURE.search(text)
            return QueryHostError(
                "rows that were read did not reach the tasks that deliver them"
                f" ({text.splitlines()[0] if reason is None else reason.group(1)}); the step is repeated. If this"
                " happens again, check the executors' logs: one executor may have run out of memory or disk space, or"
                " others cannot reach its spark.blockManager.port"
            )
        if (full := _FULL.search(text)) is not None:
            return QueryHostError(
                f"Spark cannot write its files: {full[0]}; free space where the state directory is, or where an"
                f" executor's files are\n{text}",
                outage=True,
            )
        if (death := _WORKER_DEATH.search(text)) is not None:
            return QueryHostError(
                f"a Python worker of Spark on {death[1]} was killed, or crashed. If memory ran out, give that host or"
                f" its container more; otherwise see Spark's log there\n{text}"
            )
        if (raised := _raised_in(text)) is not None:
            return QueryHostError(f"a Python worker of Spark failed: {raised}\n{text}")
        return QueryHostError(f"{type(error).__name__}: {text}")

    def stop(self) -> None:
        self._query.stop()


def _raised_in(text: str) -> str | None:
    """Return what the last Python traceback in *text* ends with. Spark may have indented it."""
    *_, last = (None, *_TRACEBACK.finditer(text))
    if last is None:
        return None
    end = re.compile(rf"^ {{0,{len(last[1])}}}(\S.*)", re.MULTILINE).search(text, last.end())
    return None if end is None else end[1]


class StartSessions:
    """Sessions of the application of *session*, as many as queries ever start at a time. Safe for several threads.

    A registered data source holds a plain HashMap of environment variables, which all tasks carry and into which Spark
    writes when a query starts. Two queries that start at once would damage a shared one for good, and no task could be
    read again. Spark looks data sources up by name, but not before the query runs: in the copy of its session that the
    query got when it started. So a session serves one start at a time, and each start registers both again.

    Sessions are kept, as Spark never forgets one in which a query started: a listener of it stays in the context.
    """

    def __init__(self, session: SparkSession) -> None:
        self.main = session
        self._lock = Lock()
        self._free: dict[bool, list[SparkSession]] = {False: [], True: []}

    @contextmanager
    def lent(self, *, evaluates: bool) -> Iterator[SparkSession]:
        """Give a session to the block, in which one query may start. The query may outlast the block.

        It has fresh registrations of the source and the sink, and the settings of `query_session` if the query
        *evaluates* expressions. It becomes the active session of this thread, and stays so.
        """
        with self._lock:
            free = self._free[evaluates]
            own = free.pop() if free else None
        if own is None:
            own = self._evaluating_session() if evaluates else self._passing_session()
        try:
            make_active(own)
            own.dataSource.register(RangefeedSource)
            own.dataSource.register(ChangefeedSink)
            yield own
        finally:
            with self._lock:
                free.append(own)

    def _evaluating_session(self) -> SparkSession:
        from cdc_core.spark.query_planning import query_session  # loads the parser

        return query_session(self.main)

    def _passing_session(self) -> SparkSession:
        """Return a new session for queries that pass rows on as they are: Spark compiles no code for them."""
        own = self.main.newSession()
        own.conf.set("spark.sql.codegen.wholeStage", "false")
        own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        return own
