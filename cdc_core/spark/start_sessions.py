"""Sessions in which streaming queries start, each with data sources that belong to one query alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pyspark.sql import SparkSession

from cdc_core.spark.data_sources import ChangefeedSink, RangefeedSource
from cdc_core.spark.private_api import make_active
from cdc_core.spark.query_planning import query_session

__all__ = ["StartSessions"]


class StartSessions:
    """Sessions of the application of *session*, as many as queries ever start at a time. Safe for several threads.

    A registered data source holds a plain HashMap of environment variables, which all tasks carry and into which Spark
    writes when a query starts. Two queries that start at once would damage a shared one for good, and no task could be
    read again. Spark looks data sources up by name, but not before the query runs: in the copy of its session that the
    query got when it started. So a session serves one start at a time, and each start registers both again.

    Sessions are kept, as Spark never forgets one in which a query started: a listener of it stays in the context.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
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
            own = query_session(self._session) if evaluates else self._session.newSession()
        try:
            make_active(own)
            own.dataSource.register(RangefeedSource)
            own.dataSource.register(ChangefeedSink)
            yield own
        finally:
            with self._lock:
                free.append(own)
