"""What the parts of one run share; what other threads ask of it; and how a pause is saved, shown and waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_progress import delivered
from cdc_core.engine.control_requests import Answers
from cdc_core.engine.error_text import one_line
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.run_status import RunStatus
from cdc_core.errors import FencedError, RetryableError, TerminalError
from cdc_core.masking import mask
from cdc_core.remedies import fitting
from cdc_core.store.progress import Pause, ProgressStore
from cdc_core.telemetry.status import shown_moment
from cdc_core.timestamp import Timestamp

log = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818
    """The run was told to stop while nothing was running yet."""


@dataclass(slots=True)
class RunControl:
    """Stop, abandon the running step as well, pause."""

    stop: threading.Event = field(default_factory=threading.Event)
    abandon: threading.Event = field(default_factory=threading.Event)
    pause: str | None = None
    """The reason to pause for. Changed under `pause_lock` alone, as is the next."""
    resumed: bool = False
    """Whether a resumption was asked for last since the pause began."""
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
        with ExitStack() as held:
            held.enter_context(self._control.pause_lock)
            asked, self._control.pause = self._control.pause, None
            self._control.resumed = False
            if asked is None:  # otherwise a `resume` waits until it finds the pause in the store
                held.close()
            reason = error or asked
            pause = None if reason is None else Pause(reason=reason, since=datetime.now(UTC))
            outage: RetryableError | None = None
            while True:
                try:
                    self._store.claims.pause_run(
                        self._name, epoch, error, asked=asked, undone=lambda: self._control.resumed
                    )
                    outage = None
                except RetryableError as failure:
                    outage = failure
                if pause is not None:
                    self._show(pause)
                if outage is None:
                    return
                self._complain(
                    "changefeed '%s' is paused, but the pause could not be saved for the next run: %s", outage
                )
                if not retry or self._stop.wait(_POLL_S):
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
                    self._say(phase="starting", waiting_for=None, paused_since=None, resume_command=None)
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

    def _show(self, pause: Pause) -> None:
        if self._known is None:
            log.warning(
                "%s. It delivers nothing, and its source retains the history that has not been read; once the cause is"
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


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One run of `feed`, which has the identity in the store as soon as that is known."""

    feed: ResolvedChangefeed
    store: ProgressStore
    state_dir: Path
    host: QueryHost
    control: RunControl
    status: RunStatus
    once: bool
    """Whether the run ends when it has delivered what is there."""
    job_epoch: int | None
    """Of a job, None for a run from the command line."""

    def shown(self, error: BaseException) -> str:
        """Return *error* in one line for people, without secrets."""
        text = fitting(one_line(error), self.feed.name, job=self.job_epoch is not None)
        return mask(text, self.feed.secrets())

    def delivered(self) -> tuple[float, Timestamp] | None:
        """Return what was ever delivered, as the function of that name; None while the store is out of reach."""
        with suppress(RetryableError):
            return delivered(self.feed.name, self.store)
        return None

    def check_stop(self) -> None:
        """Raises: Stopped when the run is to stop."""
        if self.control.stop.is_set():
            raise Stopped

    def quietly(self, end: Callable[[], object]) -> None:
        """Call *end* at the end of an attempt; an error of it is only logged. It says nothing new of a dead host."""
        try:
            end()
        except Exception as error:
            text = self.shown(error)
            level = logging.WARNING if self.host.is_alive else logging.DEBUG
            log.log(level, "changefeed '%s': the cleanup after an attempt failed: %s", self.feed.name, text)
