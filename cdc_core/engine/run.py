"""A run of a changefeed: attempts, retries with back-off, a clean stop, and the status."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from cdc_core.engine.attempts import Attempts, Ending
from cdc_core.engine.checks import check_and_prepare
from cdc_core.engine.error_text import cause_of, owner_of
from cdc_core.engine.fencing import RunLock
from cdc_core.engine.finish import finish_earlier_run
from cdc_core.engine.host_checks import check_executors
from cdc_core.engine.host_session import HostSession
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.engine.query_host import QueryHostError
from cdc_core.engine.retry_policy import FINAL, RetryPolicy
from cdc_core.engine.run_control import Pausing, RunContext, Stopped
from cdc_core.engine.run_events import RunEvents
from cdc_core.engine.run_status import WatchError
from cdc_core.engine.start_position import register
from cdc_core.engine.takeover import PreviousAttempts
from cdc_core.errors import CdcError, ConfigError, FencedError, RetryableError, TerminalError
from cdc_core.private_files import make_state_directory
from cdc_core.schema import TableSchema
from cdc_core.telemetry.status import Status

log = logging.getLogger(__name__)

_POLL_S = 0.25
_FAILURES_OF_A_SESSION = 3
"""After so many failures of Spark at one step, the next attempt begins another session: an executor may be broken."""


class Run:
    """One run of a changefeed, in the thread that calls `run`. See `Supervisor`."""

    def __init__(self, context: RunContext, *, after_unclean: bool, resume_command: str | None) -> None:
        self._run = context
        feed, host = context.feed, context.host
        self._status, self._control = context.status, context.control
        self._session = HostSession(context)
        self._queries = PlannedQueries(feed, host, acquire=self._session.acquire)
        self._retry_policy = RetryPolicy(feed)
        self._registered_epoch = 0
        self._events: RunEvents | None = None
        self._attempts: Attempts | None = None
        command = resume_command or f"cdc resume FILE {feed.name}"
        self._pausing = Pausing(feed.name, context.store, command=command, say=self._status.say, control=self._control)
        self._previous = PreviousAttempts(
            feed.name, context.state_dir, after_unclean=after_unclean, say=self._status.say, control=context.control
        )

    @property
    def status(self) -> Status:
        return self._status.now

    @property
    def _epoch(self) -> int:
        return self._registered_epoch if self._attempts is None else self._attempts.epoch

    @property
    def has_begun(self) -> bool:
        """Whether a query was ever started."""
        return self._attempts is not None and self._attempts.has_begun

    def run(self) -> Ending:
        """Return how the run ended.

        Raises: ConfigError before anything is created at the source or the sink; any other error that ended the run.
        """
        make_state_directory(self._run.state_dir)
        try:
            with RunLock(self._run.state_dir / f"{self._run.feed.name}.lock") as lock:
                if not lock.acquire():
                    raise self._already_running(lock.holder)
                ending = self._registered()
        except WatchError as failed:
            (error,) = failed.args
            self._end("failed", error)
            raise error from None
        except BaseException as error:
            self._end("failed", error)
            raise
        self._end(ending)
        return ending

    def resume(self) -> None:
        with self._control.pause_lock:
            self._control.pause, self._control.resumed = None, True
            self._run.store.claims.resume_run(self._run.feed.name)

    def _already_running(self, process: str) -> CdcError:
        text = f"changefeed '{self._run.feed.name}' is already running from {self._run.state_dir} (process {process})"
        if self._run.job_epoch is None:
            return ConfigError(f"{text}; stop it first")
        return RetryableError(f"{text}; kill that process of an earlier run if it does not end on its own")

    def _registered(self) -> Ending:
        run, known = self._run, register(self._run.feed, self._run.store, epoch=self._run.job_epoch)
        feed = run.feed = run.feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch, state=run.store.url)
        self._registered_epoch = known.epoch
        self._events = RunEvents(feed.name, run.store, job=run.job_epoch is not None)
        self._status.continue_from(known.high_water)
        if run.once:
            self._pausing.require_not_paused(self._epoch)
        if not self._pausing.wait(self._epoch):
            return "stopped"
        if finish_earlier_run(feed, run.store):
            return "complete"
        attempts = self._attempts = Attempts(
            run,
            self._session,
            events=self._events,
            previous=self._previous,
            queries=self._queries,
            pausing=self._pausing,
        )
        try:
            with self._session.opening():
                self._check_and_prepare()
            ending = self._until_it_ends(attempts)
            self._keep_pause()
            return ending
        except Stopped:
            return "stopped"
        finally:
            run.host.release(feed.name)

    def _until_it_ends(self, attempts: Attempts) -> Ending:
        """Take attempts until one of them ends the run. Raises: what ends it otherwise."""
        while True:
            try:
                if self._pausing.is_asked(in_store=not self._status.is_kept) and not self._pause():
                    return "stopped"
                ending = attempts.take()
                if ending == "complete" or self._control.stop.is_set():
                    return ending
                continue  # it was left for a pause, or for more slices at a time
            except Stopped:
                return "stopped"
            except (FencedError, WatchError):
                raise
            except Exception as error:
                reason: Exception = error
                final = self._final(attempts, error)
            if final is not None:
                if (
                    not attempts.has_begun
                    or self._run.feed.options.on_error != "pause"
                    or self._run.job_epoch is not None
                ):
                    raise final
                if not self._pause(final):
                    return "stopped"
                self._retry_policy.reset()
            elif self._wait(reason, self._retry_policy.next_wait_s(reason)):
                return "stopped"

    def _final(self, attempts: Attempts, error: Exception) -> CdcError | None:
        """Return what ends the run after an attempt failed by *error*, None if another one follows. Raises: likewise,
        of a run that has not begun.
        """
        repairable = self._may_be_repaired(error)
        if isinstance(error, FINAL) and not repairable:
            return error
        self._queries.learn(error)
        if not (attempts.has_begun or repairable or self._control.stop.is_set()):
            self._session.raise_if_fatal_on_start(error)
        if attempts.before is not None and self._run.delivered() not in (None, attempts.before):
            self._retry_policy.reset()
        return self._judge(error)

    def _may_be_repaired(self, error: Exception) -> bool:
        """Return whether *error* is due to a later change elsewhere: the changefeed has delivered something before."""
        if not (isinstance(error, CdcError) and error.repairable):
            return False
        found = self._run.delivered()
        return found is None or any(found)

    def _pause(self, error: CdcError | None = None) -> bool:
        """Pause the changefeed for *error*, or as asked; return True when it is resumed, False when told to stop."""
        reason = None if error is None else self._run.shown(error)
        self._pausing.pause(self._epoch, error=reason, retry=not self._run.once)
        if self._run.once:
            if error is not None:
                raise error
            self._pausing.require_not_paused(self._epoch)
        self._status.set(retrying=None)
        self._session.release()  # the pause may be long
        return self._pausing.wait(self._epoch)

    def _keep_pause(self) -> None:
        """Save a pause that was asked for before the run ended for another reason, for the next run."""
        if self._status.is_kept and self._pausing.is_asked():
            self._pausing.pause(self._epoch, retry=False)

    def _judge(self, error: Exception) -> TerminalError | None:
        """Return why no other attempt follows the one that failed; None if one does, or the run is to end anyway."""
        if self._control.stop.is_set():
            return None
        reason = self._run.shown(error)
        return self._retry_policy.give_up_reason(error, reason, host_ended=self._session.cause_of_death)

    def _wait(self, reason: Exception, wait_s: float) -> bool:
        """Wait before the next attempt; return True when told to stop meanwhile."""
        text = self._session.named_death(self._run.shown(reason))
        if self._control.stop.is_set():
            log.warning("changefeed '%s': stopped in the middle of a step: %s", self._run.feed.name, text)
            return True
        if not wait_s:
            log.info("changefeed '%s': %s", self._run.feed.name, text)
            return False
        self._status.count_retry(cause_of(reason), text)
        if self._events is not None:
            self._events.retried(cause_of(reason), text, wait_s)
        log.warning(
            "changefeed '%s': %s%s; next attempt in %.1f s", self._run.feed.name, text, self._retry_policy.note, wait_s
        )
        failures = self._retry_policy.failures
        if isinstance(reason, QueryHostError) and failures and not failures % _FAILURES_OF_A_SESSION:
            self._session.renew()
        owner = owner_of(reason, self._run.feed)
        deadline = time.monotonic() + wait_s
        while (left := deadline - time.monotonic()) > 0 and not self._pausing.is_asked():
            self._status.say(phase="waiting to retry", waiting_on=owner, waiting_for=text, next_attempt_s=left)
            if self._control.stop.wait(min(left, _POLL_S)):
                return True
        self._status.set(waiting_on=None, waiting_for=None, next_attempt_s=None)
        return False

    def _check_and_prepare(self) -> None:
        """Return when the changefeed can run. Raises: as the function of that name.

        A check does not tell an outage from a refusal, so one that has run before waits for as long as it lasts.
        """

        def check() -> None:
            check_and_prepare(self._run.feed, self._run.store, self._check_executors, self._queries.delivered)

        self._patiently(check, self._may_be_repaired)

    def _check_executors(self, schemas: Sequence[TableSchema]) -> None:
        """Return when every executor can run tasks of the changefeed. Raises: ConfigError, QueryHostError."""

        def check() -> None:
            self._session.acquire()
            self._status.say(phase="checking executors")
            check_executors(
                self._run.feed, schemas, self._run.host, self._run.state_dir, stopped=self._control.stop.is_set
            )
            self._run.check_stop()

        def passes(error: Exception) -> bool:
            its_own = isinstance(error, QueryHostError) and self._session.is_fatal_in_preflight(error)
            return isinstance(error, RetryableError) and not its_own

        if not self._run.host.is_local:
            self._patiently(check, passes)

    def _patiently(self, check: Callable[[], None], passes: Callable[[Exception], bool]) -> None:
        """Call *check* until it returns, with waits after errors that may pass. Raises: the error of the last call."""
        while True:
            try:
                return check()
            except Exception as error:
                if not passes(error):
                    raise
                if not self._may_be_repaired(error) and (final := self._judge(error)) is not None:
                    raise final from None
                self._status.keep(self._epoch)
                if self._wait(error, self._retry_policy.next_wait_s(error)):
                    raise Stopped from None
                if self._pausing.is_asked() and not self._pause():
                    raise Stopped from None

    def _end(self, phase: str, error: BaseException | None = None) -> None:
        """Show for good how the run ended."""
        reason = None if error is None else self._run.shown(error)
        self._status.forget_tasks()
        self._status.set(phase=phase, error=reason, retrying=None)
        if self._events is not None:
            self._events.ended(phase, error, reason)
        self._status.keep_now()
