"""Spark for all changefeeds of a process: one JVM, one session, one streaming query for each changefeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Protocol

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.query_host import Query, QueryHostError
from cdc_core.errors import TerminalError, from_wire
from cdc_core.queries.bound_query import BoundQuery, QueryPlan
from cdc_core.spark.columns import spark_schema
from cdc_core.spark.encryption import require_encryption, warn_of_open_masters
from cdc_core.spark.executors import Presence, await_executors, check_executors, require_executors
from cdc_core.spark.jvm import jvm_death
from cdc_core.spark.log_file import keep_newest, last_words
from cdc_core.spark.preload import preload
from cdc_core.spark.private_api import Py4JError, make_active
from cdc_core.spark.query import RunningQuery, StartSessions, start_query, warm_up
from cdc_core.spark.session import end_jvm, is_alive, open_session, require_java
from cdc_core.spark.session_settings import is_local, memory_settings


class Master(Protocol):
    """The master of a cluster, which may move from host to host."""

    def url(self, *, wanted: Callable[[], bool]) -> str:
        """Return where a new application finds it; at once, whatever it knows, when it is no longer *wanted*.

        Raises: RetryableError.
        """

    def has_lost(self, application: str) -> bool:
        """Return whether it does not know *application*, which has begun with the last `url`. Asked all the time."""


class SparkHost:
    """The Spark session that changefeeds of this process share, with the settings *spark*. See `QueryHost`.

    *name* is the name of the application and of its files in *state_dir*. On one host there are task slots for each
    core and each of *changefeeds*: one whose tasks hang takes none from the others. A *temporary* one has a directory
    that is gone when somebody reads its errors: they hold the end of Spark's log in place of its path. *master* finds
    the master of each session that is opened, if it may be another one than that of *spark*.

    Raises: ConfigError when there is no Java that Spark can run on, or *spark* does not say whether to encrypt.
    """

    def __init__(
        self,
        name: str,
        spark: Mapping[str, str],
        *,
        state_dir: Path,
        changefeeds: int = 1,
        temporary: bool = False,
        master: Master | None = None,
    ) -> None:
        require_encryption(spark)
        require_java()
        self._name = name
        self._spark = spark
        self._master = master
        self._log_path = state_dir.absolute() / f"{name}.spark.log"
        self._changefeeds = changefeeds
        self._temporary = temporary
        self._lock = Lock()
        self._sessions: StartSessions | None = None
        """Of the session that is open."""
        self._users: set[str] = set()
        self._presence = Presence()
        self.queries = False
        """Whether the next JVM is to evaluate queries."""

    @property
    def is_local(self) -> bool:
        return is_local(self._spark)

    @property
    def log_name(self) -> str:
        return self._log_path.name

    @property
    def memory_settings(self) -> str:
        return memory_settings(self._spark)

    @property
    def is_shared(self) -> bool:
        return len(self._users) > 1

    @property
    def is_alive(self) -> bool:
        sessions = self._sessions
        return sessions is not None and is_alive(sessions.main)

    @property
    def death(self) -> str | None:
        return jvm_death()

    def owns(self, context: SparkContext) -> bool:
        """Return whether *context* is that of this host's session."""
        sessions = self._sessions
        return sessions is not None and sessions.main.sparkContext is context

    def acquire(self, user: str) -> int:
        self._users.add(user)
        with self._lock, _spark_errors(), self._reasons_in_errors():
            if self._sessions is not None and not self.is_alive:
                self._end()
            if self._sessions is None:
                if self._master is not None:
                    self._spark = {**self._spark, "master": self._master.url(wanted=self._is_wanted)}
                session = open_session(
                    self._name,
                    self._spark,
                    log_path=self._log_path,
                    changefeeds=self._changefeeds,
                    queries=self.queries,
                    wanted=self._is_wanted,
                )
                self._sessions, self._presence = StartSessions(session), Presence()
                warn_of_open_masters(self._spark)
                with self._sessions.lent(evaluates=False):
                    pass  # the first one takes time, which no query has to spend
                make_active(session)
            return max(1, self._sessions.main.sparkContext.defaultParallelism)

    def preload(self, *, stopped: Callable[[], bool]) -> None:
        session = self._opened().main
        with _spark_errors():
            make_active(session)
            tasks = max(1, session.sparkContext.defaultParallelism)
            preload(session, self._log_path.with_suffix(".preload"), tasks=tasks, stopped=stopped)

    def release(self, user: str) -> None:
        self._users.discard(user)  # before the lock: a session that is opening holds it, and gives up without users
        if self._users:
            return
        with self._lock:
            if not self._users:
                self._end()

    def await_executors(self, wait_s: float, *, stopped: Callable[[], bool]) -> int:
        session = self._opened().main

        def poll() -> bool:
            self._require_known(session)
            return stopped()

        with _spark_errors():
            try:
                return await_executors(session, wait_s, self._presence, stopped=poll)
            except QueryHostError:
                with self._lock:
                    if not self.is_shared:  # a master that was restarted may not know the application anymore
                        self._end()
                raise

    def check_executors(self, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
        with _spark_errors():
            check_executors(self._opened().main, config, stopped=stopped)

    def warm_up(self, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
        with _spark_errors():
            warm_up(self._opened(), config, stopped=stopped)

    def plan(self, query: BoundQuery) -> QueryPlan:
        from cdc_core.spark.query_planning import plan_query, query_session  # loads the parser

        with _spark_errors():
            return plan_query(query_session(self._opened().main), query)

    def explain(self, query: BoundQuery) -> str:
        """Return the optimized plan of a query that `plan` has accepted, as text. Runs nothing."""
        from cdc_core.spark.query_planning import explain_query, query_session

        with _spark_errors():
            return explain_query(query_session(self._opened().main), query)

    def evaluate(self, rows: pa.Table, plans: Sequence[QueryPlan]) -> Sequence[pa.RecordBatch]:
        """Return what the queries give for *rows*, in order, both in the columns layout. Takes a Spark job."""
        from cdc_core.spark.query_planning import evaluated, query_session

        with _spark_errors():
            session = query_session(self._opened().main)
            frame = session.createDataFrame(rows, spark_schema([plan.query for plan in plans]))
            batches: Sequence[pa.RecordBatch] = evaluated(frame, plans).toArrow().to_batches()
            return batches

    def start(self, config: AttemptConfig) -> Query:
        with _spark_errors():
            return RunningQuery(start_query(self._opened(), config))

    def maintain(self, *, executor_wait_s: float, slots: int) -> bool:
        if self._lock.acquire(blocking=False):
            try:
                keep_newest(self._log_path)
            finally:
                self._lock.release()
        if self.is_local:
            return False
        session = self._opened().main
        with _spark_errors():
            self._require_known(session)
            require_executors(session, executor_wait_s, self._presence)
        return self._presence.has_room(slots)

    @contextmanager
    def _reasons_in_errors(self) -> Iterator[None]:
        try:
            yield
        except TerminalError as error:
            before, named, _ = str(error).partition(f"; see {self._log_path}")
            if not (self._temporary and named):
                raise
            raise TerminalError(f"{before}; its log ends with: {last_words(self._log_path) or '(nothing)'}") from None

    def _opened(self) -> StartSessions:
        sessions = self._sessions
        if sessions is None:
            raise QueryHostError("Spark's session was closed")
        return sessions

    def _is_wanted(self) -> bool:
        return bool(self._users)

    def _require_known(self, session: SparkSession) -> None:
        """Raises: QueryHostError when the master has lost the application, which would get no more executors."""
        if self._master is not None and self._master.has_lost(session.sparkContext.applicationId):
            raise QueryHostError(
                f"the master {session.sparkContext.master} no longer knows the application, so a new one starts",
                outage=True,
            )

    def _end(self) -> None:
        if self._sessions is not None:
            end_jvm(self._sessions.main)
        self._sessions = None


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn Spark's errors into those of `QueryHost`."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = _text(error)
        raise from_wire(text) or QueryHostError(f"{type(error).__name__}: {text}") from None


def _text(error: Exception) -> str:
    if isinstance(error, ConnectionError):
        return "Spark's JVM ended"
    try:
        return str(error)
    except Exception:  # the text of some is in the JVM, which is dead
        return "Spark's JVM ended"
