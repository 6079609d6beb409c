"""A run's share of the session of a query host: opened while the run checks its changefeed, and again when it died."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.run_context import RunContext

__all__ = ["HostSession"]


class HostSession:
    """What one run has of the host. Used by its thread."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._opening: Future[int] | None = None
        self._warm = False
        self.is_open = False
        """Whether the host was there when it was asked last."""

    @property
    def has_died(self) -> bool:
        return self.is_open and not self._run.host.is_alive

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Open the session while the block runs; an error of the block does not wait for it."""
        name = self._run.feed.name
        with ThreadPoolExecutor(1, thread_name_prefix=f"opening Spark for {name}") as pool:
            self._run.status.say(phase="starting Spark")
            opening = self._opening = pool.submit(
                copy_context().run, self._run.host.acquire, name, self._run.feed.modules
            )
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
        opening, self._opening, self.is_open = self._opening, None, False
        slots = host.acquire(feed.name, feed.modules) if opening is None else opening.result()
        if not host.is_local:
            say(phase="waiting for executors")
            slots = host.await_executors(feed.options.executor_wait, stopped=self._run.control.stop.is_set)
        self.is_open = True
        self._run.check_stop()
        return slots

    def warm_up(self, config: AttemptConfig) -> None:
        """Have the host get ready what the first step needs, unless it is. Raises: Stopped; as `QueryHost`."""
        if not self._warm:
            self._run.status.say(phase="warming up")
            self._run.host.warm_up(replace(config, warm_up=True), stopped=self._run.control.stop.is_set)
            self._run.check_stop()
            self._warm = True

    def release(self) -> None:
        """Give the host's memory back until the next `acquire`."""
        self._run.host.release(self._run.feed.name)
        self._opening = None
