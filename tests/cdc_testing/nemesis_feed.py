"""A changefeed that runs in this process while another thread acts on it: starts it, stops it, abandons it."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdc_testing.nemesis_engine import BUG, control_of

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.frontier import Frontier
from cdc_core.plugins.host import PluginHost
from cdc_core.step_planner import StepPlanner
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status
from cdc_core.timestamp import Timestamp

__all__ = ["NemesisFeed", "TroubleError"]

_LIMIT_S = 120.0
_POLL_S = 0.02


class TroubleError(AssertionError):
    """The changefeed did what it must never do: ended, or did not come to an end or to something in time."""


class NemesisFeed:
    """One changefeed. `serve` belongs to the main thread, where runs need to be, all others to the acting thread."""

    def __init__(self, directory: Path, changefeed: Changefeed, host: PluginHost, *, bug: str = "") -> None:
        self.state_dir = directory / "state"
        self.control = control_of(self.state_dir)
        self.control.mkdir(parents=True)
        (self.control / BUG).write_text(bug)
        self._changefeed = changefeed
        self._host = host
        self._commands: queue.Queue[ResolvedChangefeed | None] = queue.Queue()
        self.phase = ""
        self._ended = threading.Event()
        self._ended.set()
        self._error: BaseException | None = None
        self._told_to_stop = False
        self._interrupted = False
        self._planner: StepPlanner | None = None
        self._store = ProgressStore(store_url(self.state_dir))

    def feed(self, options: Mapping[str, Any] | None = None) -> ResolvedChangefeed:
        """Return the changefeed with *options* over its own, ready to run, with the names of its tables."""
        changed = replace(self._changefeed, options={**self._changefeed.options, **(options or {})})
        feed = resolve(changed, self._host)
        with closing(feed.open_rangefeed()) as rangefeed:
            names = [schema.name for schema in rangefeed.schemas()]
        return feed.for_attempt(feed_id="", epoch=0, table_names=names)

    def serve(self, act: Callable[[], None]) -> None:
        """Do *act* in a thread, and run the changefeed here whenever that asks for it.

        Raises: what *act* raises; KeyboardInterrupt when a run was stopped, but not by *act*.
        """
        failures: list[BaseException] = []

        def acting() -> None:
            try:
                act()
            except BaseException as error:
                failures.append(error)
            finally:
                if not self._ended.is_set():
                    self._signal(twice=True)
                self._commands.put(None)

        thread = threading.Thread(target=acting, name="nemesis")
        handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may come when the run has just ended by itself
        thread.start()
        try:
            while (feed := self._commands.get()) is not None:
                self._run(feed)
        finally:
            thread.join()
            signal.signal(signal.SIGTERM, handler)
            if self._planner is not None:
                self._planner.close()
            self._store.close()
        if self._interrupted:
            raise KeyboardInterrupt
        if failures:
            raise failures[0]

    def resume(self, options: Mapping[str, Any]) -> None:
        """Start a run with *options* over the changefeed's own."""
        self._ended.clear()
        self.phase = ""
        self._commands.put(self.feed(options))

    def pause(self, *, abandoned: bool = False) -> None:
        """Return when the run has ended. Raises: TroubleError when it ended with an error, or does not end."""
        self._signal(twice=abandoned)
        if not self._ended.wait(_LIMIT_S):
            raise TroubleError(f"the run did not stop in {_LIMIT_S:.0f} s")
        self._raise_error()

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def until(self, what: str, condition: Callable[[], bool], *, limit_s: float = _LIMIT_S) -> None:
        """Return as soon as *condition* holds. Raises: TroubleError when the run ends first, or it takes too long."""
        deadline = time.monotonic() + limit_s
        pause = threading.Event()
        while not condition():
            if self._ended.is_set():
                self._raise_error()
                raise TroubleError(f"the run ended before {what}")
            if time.monotonic() > deadline:
                raise TroubleError(f"waited {limit_s:.0f} s for {what}")
            pause.wait(_POLL_S)

    def now(self) -> Timestamp:
        """Return the source's clock."""
        if self._planner is None:
            self._planner = self.feed().open_planner()
        return self._planner.now()

    def frontier(self) -> Frontier:
        """Return up to where what is saved, by span."""
        progress = self._store.load(self._changefeed.name)
        return Frontier(()) if progress is None else progress.frontier

    def high_water(self) -> Timestamp:
        """Return up to where all is saved."""
        return self.frontier().high_water

    def drop(self) -> None:
        """Remove what the changefeed made at the source, once no run is there."""
        progress = self._store.load(self._changefeed.name)
        feeds = [feed for feed in self._store.list() if feed.name == self._changefeed.name]
        if feeds:
            feed = self.feed().for_attempt(feed_id=feeds[0].feed_id, epoch=feeds[0].epoch)
            with closing(feed.open_rangefeed()) as rangefeed:
                rangefeed.drop(None if progress is None else progress.token)

    def _run(self, feed: ResolvedChangefeed) -> None:
        from cdc_core.spark.runner import run

        self._told_to_stop = False
        try:
            run(feed, store=self._store, state_dir=self.state_dir, once=False, status=self._show)
            self._interrupted = not self._told_to_stop
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _show(self, status: Status) -> None:
        self.phase = status.phase

    def _signal(self, *, twice: bool) -> None:
        self._told_to_stop = True
        for _ in range(1 + twice):
            signal.raise_signal(signal.SIGTERM)
            threading.Event().wait(_POLL_S)  # two that come together are one

    def _raise_error(self) -> None:
        if self._error is not None:
            raise TroubleError(f"the changefeed ended: {type(self._error).__name__}: {self._error}") from self._error
