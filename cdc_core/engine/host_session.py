"""A run's share of the session of a query host: opened while the run checks its changefeed, and again when it died."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.query_host import QueryHostError
from cdc_core.engine.run_control import RunContext
from cdc_core.errors import RetryableError, TerminalError, is_outage
from cdc_core.masking import mask

log = logging.getLogger(__name__)


class HostSession:
    """What one run has of the host. Used by its thread."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._opening: Future[int] | None = None
        self._warm = False
        self._is_open = False
        """Whether the host was there when it was asked last."""

    @property
    def has_died(self) -> bool:
        return self._is_open and not self._run.host.is_alive

    @property
    def cause_of_death(self) -> str | None:
        """What to do about a host that has died, None for one that is alive."""
        if not self.has_died:
            return None
        host = self._run.host
        return host.death or f"see {self._log} for the reason. If memory ran out, raise {host.memory_settings}"

    def named_death(self, text: str) -> str:
        """Return *text* of an error, with that of the host if it has died."""
        return f"Spark's JVM is gone: {self._run.host.death or text}" if self.has_died else text

    def is_fatal_in_preflight(self, error: QueryHostError) -> bool:
        """Return whether *error* of the preflight ends the run: no other changefeed of the session can have caused it.

        An outage is the cluster's.
        """
        return is_outage(error) or not self._run.host.is_shared

    def raise_if_fatal_on_start(self, error: Exception) -> None:
        """Return when a retry may cure *error* of the first attempt. Raises: what says why the run ends."""
        host = self._run.host
        if host.is_shared and (isinstance(error, QueryHostError) or not host.is_alive):
            return  # it may be another changefeed's doing
        if self.has_died:
            raise TerminalError(f"Spark's JVM ended before the changefeed began; {self.cause_of_death}") from None
        if isinstance(error, QueryHostError) and not is_outage(error):
            raise TerminalError(f"Spark cannot run: {mask(str(error), self._run.feed.secrets())}") from None
        if isinstance(error, QueryHostError) or not isinstance(error, RetryableError):
            raise error

    @property
    def _log(self) -> Path:
        return self._run.state_dir / self._run.host.log_name

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Open the session while the block runs; an error of the block does not wait for it."""
        name = self._run.feed.name
        with ThreadPoolExecutor(1, thread_name_prefix=f"opening Spark for {name}") as pool:
            self._run.status.say(phase="starting Spark")
            opening = self._opening = pool.submit(copy_context().run, self._run.host.acquire, name)
            try:
                yield
            except BaseException:
                opening.cancel()
                self._run.host.release(name)
                raise

    def acquire(self) -> int:
        """Return how many slices may be read at a time, once the host is there. Raises: Stopped; as `QueryHost`."""
        host, feed, say = self._run.host, self._run.feed, self._run.status.say
        if not host.is_alive:
            self._warm = False
            say(phase="starting Spark")
        opening, self._opening, self._is_open = self._opening, None, False
        try:
            slots = host.acquire(feed.name) if opening is None else opening.result()
        except TerminalError:
            self._run.check_stop()  # a service manager may stop the JVM too
            raise
        if not host.is_local:
            say(phase="waiting for executors")
            slots = host.await_executors(feed.options.executor_wait, stopped=self._run.control.stop.is_set)
        self._is_open = True
        self._run.check_stop()
        return slots

    def warm_up(self, config: AttemptConfig) -> None:
        """Have the host get ready what the first step needs, unless it is. Raises: Stopped; as `QueryHost`.

        On a cluster that takes a step, which what has delivered before does not need: executors were asked already.
        """
        if not self._warm and (self._run.host.is_local or not any(self._run.delivered() or ())):
            self._run.status.say(phase="warming up")
            self._run.host.warm_up(replace(config, warm_up=True), stopped=self._run.control.stop.is_set)
            self._run.check_stop()
        self._warm = True

    def renew(self) -> None:
        """Let the next `acquire` begin another session, unless other changefeeds use this one: theirs may be well."""
        if not self._run.host.is_shared:
            log.info("changefeed '%s': Spark failed repeatedly; starting another session", self._run.feed.name)
            self.release()

    def release(self) -> None:
        """Give the host's memory back until the next `acquire`."""
        self._run.host.release(self._run.feed.name)
        self._opening = None
