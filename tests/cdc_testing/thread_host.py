"""A host of queries without Spark: each attempt runs in a thread of this process.

Whatever `Run` decides (attempts, waits, pauses, ends) can be seen on it at a hundredth of Spark's price. What Spark
itself does, such as repeating a task whose process died, needs Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.engine import Engine
from cdc_testing.local_engine import Steps
from cdc_testing.scripted import ThreadDied

from cdc_core.engine.attempt import Attempt, open_attempt
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import from_wire
from cdc_core.queries.bound_query import BoundQuery, QueryPlan

_SLOTS = 2
"""So many slices make a step, as in Spark on two cores. They are read one after the other."""


class ThreadHost:
    """Runs queries in threads. See `QueryHost`.

    *before_step* is called in the thread of a query before each step is planned, the first one included: what a test
    orders there is obeyed in that step. `die` does to the host what the end of its JVM does to Spark's. *open_attempt*
    is called with what each process of Spark's gets.
    """

    is_local = True
    log_name = "threads.log"
    memory_settings = "the memory (of threads)"
    death = None
    queries = False

    def __init__(
        self, *, before_step: Callable[[], object] = lambda: None, open_attempt: Callable[[str], Attempt] = open_attempt
    ) -> None:
        self._before_step = before_step
        self._open_attempt = open_attempt
        self.slots = _SLOTS
        self._users: set[str] = set()
        self._session: threading.Event | None = None
        """Of the session that is open; set when it has ended."""

    @property
    def is_shared(self) -> bool:
        return len(self._users) > 1

    @property
    def is_alive(self) -> bool:
        return self._session is not None and not self._session.is_set()

    def die(self) -> None:
        """End the session and its queries in the middle of what they do."""
        if self._session is not None:
            self._session.set()

    def acquire(self, user: str) -> int:
        self._users.add(user)
        if not self.is_alive:
            self._session = threading.Event()
        return self.slots

    def release(self, user: str) -> None:
        self._users.discard(user)
        if not self._users:
            self.die()

    def preload(self, *, stopped: Callable[[], bool]) -> None:
        """There is nothing to load."""

    def await_executors(self, wait_s: float, *, stopped: Callable[[], bool]) -> int:
        return self.slots

    def check_executors(self, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
        """They are this process."""

    def warm_up(self, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
        _require(self._session)
        config.load()

    def plan(self, query: BoundQuery) -> QueryPlan:
        raise QueryHostError(f"only Spark can plan {query}")

    def start(self, config: AttemptConfig) -> ThreadQuery:
        session, steps = _require(self._session), Steps(self._open_attempt(config.to_option()))
        return ThreadQuery(steps, session, self._before_step, name=config.feed.name)

    def maintain(self, *, executor_wait_s: float, slots: int) -> bool:
        return slots < self.slots


class ThreadQuery:
    """The *steps* of an attempt, until *session* ends. See `Query`."""

    def __init__(self, steps: Steps, session: threading.Event, before_step: Callable[[], object], *, name: str) -> None:
        self._steps = steps
        self._session = session
        self._before_step = before_step
        self._stopped = threading.Event()
        self._in_step = threading.Lock()
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=copy_context().run, args=[self._work], name=f"query of {name}", daemon=True
        )
        self._thread.start()

    @property
    def is_active(self) -> bool:
        _require(self._session)
        return self._thread.is_alive()

    def failure(self) -> Exception:
        _require(self._session)
        return from_wire(str(self._error)) or QueryHostError(f"{type(self._error).__name__}: {self._error}")

    def stop(self) -> None:
        """Let no step begin. One that runs ends with its next batch: like Spark, this does not wait for a task."""
        self._stopped.set()
        if self._in_step.acquire(blocking=False):
            self._in_step.release()
            self._thread.join()

    def _work(self) -> None:
        try:
            while not self._is_over:
                self._before_step()
                if self._steps.plan():
                    with self._in_step:
                        if not self._is_over:
                            self._steps.take(self._passed)
                else:
                    self._stopped.wait(0.005)
        except (Exception, ThreadDied) as error:
            self._error = error
        finally:
            self._steps.close()

    def _passed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on until the query is over: then its writers lose their readers."""
        for batch in batches:
            if self._is_over:
                return
            yield batch

    @property
    def _is_over(self) -> bool:
        return self._stopped.is_set() or self._session.is_set()


def _require(session: threading.Event | None) -> threading.Event:
    """Return *session*. Raises: ConnectionError when it has ended."""
    if session is None or session.is_set():
        raise ConnectionError("the session has ended")
    return session


class KeptThreads:
    """In the place of `KeptSpark`: a run in this process that gets it is on threads."""

    @contextmanager
    def lent(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module in ("runner", "host"):  # the runner has a name of its own for it, and must not keep this one
                patch.setattr(f"cdc_core.spark.{module}.SparkHost", lambda *_, **__: ThreadHost())
            yield


class ThreadEngine(Engine):
    """Runs counting changefeeds on threads."""

    def run(self, *, before_step: Callable[[], object] = lambda: None, **how: Any) -> int:
        """As `Engine.run`, with a host that calls *before_step*. It is `host` as long as the run lasts, and after."""
        self.host = ThreadHost(before_step=before_step)
        with pytest.MonkeyPatch.context() as patch:  # a run that looks often ends soon
            patch.setattr("cdc_core.engine.run._POLL_S", 0.02)
            patch.setattr("cdc_core.engine.attempts._POLL_S", 0.02)
            return super().run(host=self.host, **how)
