"""Stop, abandon and pause a run: what other threads ask of it, and how a pause is saved, shown and waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cdc_core.engine.control_requests import Answers
from cdc_core.errors import FencedError, RetryableError, TerminalError
from cdc_core.store.progress import Pause, ProgressStore
from cdc_core.telemetry.status import shown_moment

__all__ = ["Pausing", "RunControl", "Stopped"]

log = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818
    """The run was told to stop while nothing was running yet."""


@dataclass(slots=True)
class RunControl:
    """Stop, abandon the running step as well, pause."""

    stop: threading.Event = field(default_factory=threading.Event)
    abandon: threading.Event = field(default_factory=threading.Event)
    pause: str | None = None
    """The reason to pause for. Changed under `pause_lock` alone."""
    pause_lock: threading.Lock = field(default_factory=threading.Lock)


_POLL_S = 1.0


class Pausing:
    """Pauses the changefeed *name*, of `cdc run`. *command* is the command that resumes it.

    A pause is the state of its job in the progress store and outlives the run: the next one waits too. Neither a pause
    nor a resumption raises the epoch; a waiting run notices when another attempt has begun. *say* shows changes of the
    status, *control* asks for a pause too, and ends every wait.
    """

    def __init__(
        self, name: str, store: ProgressStore, *, command: str, say: Callable[..., None], control: RunControl
    ) -> None:
        self._name = name
        self._store = store
        self._command = command
        self._say = say
        self._control = control
        self._stop = control.stop
        self._answers = Answers.of(store)
        self._known: Pause | None = None
        self._complained = False

    def is_asked(self, *, in_store: bool = False) -> bool:
        """Return whether a pause is asked for: *in_store*, which is looked at once a second, or also by a thread."""
        self._answers.poll(self._store)
        return self._name in self._answers.pauses or not (in_store or self._control.pause is None)

    def pause(self, epoch: int, *, error: str | None = None, retry: bool) -> None:
        """Return when the pause is in the store; if not *retry*, also when the store is out of reach.

        It is for an *error*, or as was asked for. Also returns when told to stop: then the next run meets the error
        again. Raises: FencedError.
        """
        with self._control.pause_lock:
            asked, self._control.pause = self._control.pause, None
            self._pause(epoch, error, asked, retry=retry)

    def _pause(self, epoch: int, error: str | None, asked: str | None, *, retry: bool) -> None:
        reason = error or asked
        pause = None if reason is None else Pause(reason=reason, since=datetime.now(UTC))
        while True:
            try:
                self._store.claims.pause_run(self._name, epoch, error, asked=asked)
            except RetryableError as failure:
                self._show(pause)
                self._complain("changefeed '%s' waits, but the pause is not saved for the next run: %s", failure)
                if retry and not self._stop.wait(_POLL_S):
                    continue
            else:
                self._complained = False
                self._show(pause)
            return

    def wait(self, epoch: int) -> bool:
        """Return True as soon as the changefeed is not paused (at once if it never was), False when told to stop.

        Raises: FencedError when another attempt than *epoch* has begun meanwhile.
        """
        while True:
            try:
                pause = self._read(epoch)
            except RetryableError as error:
                if self._known is None:
                    raise
                self._complain("changefeed '%s' cannot be resumed for now: %s", error)
                pause = self._known
            else:
                self._complained = False
            if pause is None:
                self._answers.pauses -= {self._name}  # they are older
                if self._known is not None:
                    self._known = None
                    self._say(waiting_for=None, paused_since=None, resume_command=None)
                    log.info("changefeed '%s' is resumed", self._name)
                return not self._stop.is_set()
            self._show(pause)
            if self._stop.wait(_POLL_S):
                return False

    def require_not_paused(self, epoch: int) -> None:
        """Return when the changefeed is not paused. Raises: TerminalError otherwise; FencedError as `wait` does."""
        pause = self._read(epoch)
        if pause is not None:
            raise TerminalError(f"{self._sentence(pause)}; once the cause is fixed, run `{self._command}` to continue")

    def _show(self, pause: Pause | None) -> None:
        if pause is None:
            return
        if self._known is None:
            log.warning(
                "%s. It delivers nothing, and its source retains the history that was not read; once the cause is"
                " fixed, run `%s` to continue",
                self._sentence(pause),
                self._command,
            )
        self._known = pause
        self._say(phase="paused", waiting_for=pause.reason, paused_since=pause.since, resume_command=self._command)

    def _complain(self, message: str, error: RetryableError) -> None:
        """Log once that the store is out of reach."""
        if not self._complained:
            log.warning(message, self._name, error)
        self._complained = True

    def _read(self, epoch: int) -> Pause | None:
        feed = self._store.changefeeds.find(self._name)
        if feed is None or feed.epoch != epoch:
            raise FencedError(
                f"changefeed '{self._name}': another attempt began while this one was paused, or the changefeed was"
                f" removed; this attempt (epoch {epoch}) stops"
            )
        return feed.paused

    def _sentence(self, pause: Pause) -> str:
        return f"changefeed '{self._name}' has been paused since {shown_moment(pause.since)}: {pause.reason}"
