"""What a node does for one job that it has claimed, and how that ended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc_core.config.interpolation import reference_values
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_progress import saved_steps
from cdc_core.engine.error_text import one_line
from cdc_core.engine.supervisor import Supervisor
from cdc_core.errors import FencedError, RetryableError
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.subprocess_run import SubprocessRun
from cdc_core.masking import mask
from cdc_core.remedies import fitting
from cdc_core.store.job_values import Ended, NodeRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.telemetry.logs import logged_as

log = logging.getLogger(__name__)

_FIRST_WAIT_S = 1.0
_MAX_WAIT_S = 30.0
_GIVE_UP_S = 600.0


class Reverting:
    """Drops what job *name*, claimed by session *node_id*, holds at its source. Waits for an outage for ten minutes.

    *on_end* is called in the thread when `ended` says how it has ended.
    """

    def __init__(
        self, name: str, definitions: Definitions, *, node_id: str, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self.ended: Ended | None = None
        """How it has ended, None before."""
        self.reason: str | None = None
        self._name = name
        self._definitions = definitions
        self._node_id = node_id
        self._on_end = on_end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"reverting changefeed {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Give up between two attempts; another node continues."""
        self._stop.set()

    abandon = stop

    def _work(self) -> None:
        with logged_as(self._name):
            self.ended = self._end()
        self._on_end()

    def _end(self) -> Ended:
        """Drop it, set `reason`, and return how that has ended."""
        waited, wait_s = 0.0, _FIRST_WAIT_S
        while True:
            try:
                self._definitions.drop(self._name, node_id=self._node_id)
            except RetryableError as error:
                self.reason = one_line(error)
                if waited == 0:
                    log.warning("job '%s' cannot be reverted for now: %s", self._name, self.reason)
                if waited >= _GIVE_UP_S:
                    return "not reverted"
                if self._stop.wait(wait_s):
                    return "stopped"
                waited, wait_s = waited + wait_s, min(wait_s * 2, _MAX_WAIT_S)
            except FencedError as error:
                self.reason = one_line(error)
                return "stopped"
            except BaseException as error:  # a plugin's may be SystemExit: the job must not wait for it forever
                self.reason = one_line(error)
                return "not reverted"
            else:
                self.reason = None
                return "reverted"


@dataclass(frozen=True, slots=True)
class JobEnding:
    """How the work on a job has ended and why. `clean`: nothing of it is alive anymore."""

    ended: Ended
    reason: str | None = None
    clean: bool = True


@dataclass(slots=True)
class RunningJob:
    """The work on one job, in threads or a process of its own."""

    run: Supervisor | SubprocessRun | Reverting
    feed: ResolvedChangefeed | None = None
    stop_requested: bool = False
    """Whether it was told to stop."""
    moves_to: NodeRecord | None = None
    """The node that is to have the job when it has stopped."""
    steps_before: float | None = None
    """How many steps were saved when this work began, if an earlier node may still be in a call of the sink then.

    Once another step is saved, what such a call delivers late are repeats.
    """
    references: frozenset[str] = frozenset()
    """What the references in the definition stood for before `feed` was resolved."""

    @property
    def is_outdated(self) -> bool:
        """Whether it is a run that fails, and a reference stands for something new, such as a changed secret."""
        if self.feed is None or isinstance(self.run, Reverting) or self.run.status.retrying is None:
            return False
        return not reference_values(self.feed.stored, environ=os.environ) <= self.references

    @property
    def has_begun(self) -> bool:
        """Whether it is well on its way."""
        return isinstance(self.run, Reverting) or self.run.has_begun

    @property
    def is_movable(self) -> bool:
        """Whether it is a run that is well on its way, and was not told to stop."""
        return not isinstance(self.run, Reverting) and not self.stop_requested and self.has_begun

    def ending(self, store: ProgressStore) -> JobEnding | None:
        """Return how it has ended, None while it continues. Raises: RetryableError from the store."""
        found = self._ending()
        if found is None or self.feed is None or self.steps_before is None:
            return found
        return found if saved_steps(self.feed.name, store) > self.steps_before else replace(found, clean=False)

    def _ending(self) -> JobEnding | None:
        if isinstance(self.run, Reverting):
            return None if self.run.ended is None else JobEnding(self.run.ended, self.run.reason)
        outcome = self.run.outcome
        if outcome is None or self.feed is None:
            return None
        if outcome.error is None:
            return JobEnding("succeeded" if outcome.kind == "complete" else "stopped", clean=outcome.kind == "stopped")
        text = mask(fitting(one_line(outcome.error), self.feed.name, job=True), self.feed.secrets())
        if isinstance(outcome.error, FencedError | RetryableError):
            return JobEnding("stopped", text, clean=False)
        if self.feed.options.on_error == "pause":
            return JobEnding("paused", f"job failed ({text}) but is being paused because of on_error=pause")
        return JobEnding("failed", text)
