"""What a run needs of its host: a session that several changefeeds share, and one streaming query an attempt.

`cdc_core.spark.host` is the host of the product. Another one calls `cdc_core.engine.attempt` as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.errors import RetryableError
from cdc_core.queries.bound_query import BoundQuery, QueryPlan


class QueryHostError(RetryableError):
    """Spark failed, and none of our processes said why. The first line of the text is for the status.

    By default it is not an outage.
    """

    def __init__(self, message: str, *, outage: bool = False) -> None:
        super().__init__(message, outage=outage)


class Query(Protocol):
    """A running streaming query. Used by one thread."""

    @property
    def is_active(self) -> bool: ...

    def failure(self) -> Exception:
        """Return why the query ended by itself: a CdcError of one of our processes, otherwise a QueryHostError."""

    def stop(self) -> None:
        """End the query; return when Spark runs nothing for it anymore. Interrupts no Python task."""


class QueryHost(Protocol):
    """Runs the queries of all changefeeds of this process. Called from the thread of each changefeed.

    Its methods raise QueryHostError when Spark refuses, and any exception at all when its JVM is dead: then `is_alive`
    is False, and the next `acquire` starts another one.
    """

    @property
    def is_local(self) -> bool:
        """Whether every task runs on this host."""

    @property
    def log_name(self) -> str:
        """The file in the state directory that Spark and its workers print to."""

    @property
    def memory_settings(self) -> str:
        """The settings of Spark's memory, for messages."""

    @property
    def is_shared(self) -> bool:
        """Whether more than one changefeed holds the session now."""

    @property
    def is_alive(self) -> bool:
        """Whether the session works, as far as one can tell without using it."""

    @property
    def death(self) -> str | None:
        """Of a session that is not alive: what ended it and what helps, if the log does not say so."""

    def acquire(self, user: str) -> int:
        """Open the session unless it is open; return how many slices of one changefeed may be read at a time.

        Changefeed *user* needs it until `release`. Blocks while Spark starts, for several seconds. Unless `is_local`,
        the number is known only after `await_executors`.
        """

    def preload(self, *, stopped: Callable[[], bool]) -> None:
        """Run a step without rows in the open session, so that the first changefeed does not wait for what Spark loads.

        Return earlier when *stopped* becomes true. Raises: QueryHostError.
        """

    def await_executors(self, wait_s: float, *, stopped: Callable[[], bool]) -> int:
        """Return how many slices may be read at a time by the executors, once there are some.

        Not for a local host. Returns earlier when *stopped* becomes true. Raises: QueryHostError after *wait_s*, and
        the next `acquire` opens another session unless it is shared.
        """

    def check_executors(self, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
        """Return when each executor has answered that it can run tasks of *config*. As `await_executors` otherwise.

        Raises: ConfigError.
        """

    def release(self, user: str) -> None:
        """Close the session and end its JVM unless another changefeed holds it.

        An `acquire` that is still waiting for Spark raises Stopped then.
        """

    def warm_up(self, config: AttemptConfig, *, stopped: Callable[[], bool]) -> None:
        """Get ready what the first step needs. Return earlier when *stopped* becomes true. Raises: CdcError."""

    def plan(self, query: BoundQuery) -> QueryPlan:
        """Return *query* planned. Runs nothing. Raises: OptionError when it cannot be evaluated."""

    def start(self, config: AttemptConfig) -> Query:
        """Start the attempt of *config* from its start token."""

    def maintain(self, *, executor_wait_s: float, slots: int) -> bool:
        """Keep Spark's log short. Return whether more than *slots* slices could be read at a time for a minute now.

        Called a few times a second.

        Raises: QueryHostError when a cluster has had no executor for *executor_wait_s*.
        """
