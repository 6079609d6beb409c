"""A run of a changefeed: attempts, retries with back-off, a clean stop, and the status."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.checks import check_and_prepare, end_of_once, source_clock
from cdc_core.engine.control_requests import ControlRequests
from cdc_core.engine.dead_letter_log import DeadLetterLog
from cdc_core.engine.error_text import cause_of, one_line, owner_of
from cdc_core.engine.fencing import RunLock
from cdc_core.engine.finish import all_delivered, drop_history, finish_earlier_run
from cdc_core.engine.host_checks import check_executors, required_of_hosts
from cdc_core.engine.places import compare_places, keep_places
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.engine.query_host import Query, QueryHost, QueryHostError
from cdc_core.engine.resolved_marks import emit_last_resolved_mark
from cdc_core.engine.retry_policy import FINAL, RetryPolicy
from cdc_core.engine.run_control import Pausing, RunControl, Stopped
from cdc_core.engine.run_events import RunEvents
from cdc_core.engine.run_status import RunStatus, WatchError
from cdc_core.engine.saved_progress import AttemptProgress, delivered
from cdc_core.engine.source_probe import SourceProbe
from cdc_core.engine.start_position import register, start_token
from cdc_core.engine.status_sampler import StatusSampler
from cdc_core.engine.takeover import PreviousAttempts
from cdc_core.errors import (
    CdcError,
    ConfigError,
    DestinationLostError,
    FencedError,
    RetryableError,
    TerminalError,
)
from cdc_core.masking import mask
from cdc_core.private_files import make_state_directory
from cdc_core.rangefeed import Rangefeed
from cdc_core.remedies import fitting
from cdc_core.schema import TableSchema
from cdc_core.store.progress import ProgressStore
from cdc_core.telemetry import metrics
from cdc_core.telemetry.status import Status
from cdc_core.timestamp import Timestamp

__all__ = ["Ending", "Run"]

log = logging.getLogger(__name__)

Ending = Literal["complete", "stopped", "abandoned", "given up"]

_POLL_S = 0.25
_STOP_LIMIT_S = 120.0


class Run:
    """One run of a changefeed, in the thread that calls `run`. See `Supervisor`."""

    def __init__(
        self,
        feed: ResolvedChangefeed,
        store: ProgressStore,
        state_dir: Path,
        host: QueryHost,
        control: RunControl,
        *,
        once: bool,
        after_unclean: bool,
        resume_command: str | None,
        job_epoch: int | None,
        watch: Callable[[Status], None] | None,
    ) -> None:
        # A run that is to end does not wait between steps.
        self._feed = replace(feed, min_checkpoint_frequency_s=0.0) if once else feed
        self._store = store
        self._state_dir = state_dir
        self._host = host
        self._control = control
        self._once, self._job_epoch = once, job_epoch
        self._status = RunStatus(feed.name, store, log_name=host.log_name, watch=watch)
        self._say = self._status.say
        self._until: Timestamp | None = None
        self._opening: Future[int] | None = None
        self._opened = False
        self._queries = PlannedQueries(feed, host, acquire=self._acquire)
        self._retry_policy = RetryPolicy(feed, host, state_dir)
        self._warm = False
        self.steady = False
        self._before: tuple[float, Timestamp] | None = None
        self._epoch = 0
        self._events: RunEvents | None = None
        command = resume_command or f"cdc resume FILE {feed.name}"
        self._pausing = Pausing(feed.name, store, command=command, say=self._say, stop=control.stop)
        self._previous = PreviousAttempts(
            feed.name, state_dir, after_unclean=after_unclean, say=self._say, control=control
        )

    @property
    def status(self) -> Status:
        return self._status.now

    def run(self) -> Ending:
        """Return how the run ended.

        Raises: ConfigError before anything is created at the source or the sink; any other error that ended the run.
        """
        make_state_directory(self._state_dir)
        try:
            with RunLock(self._state_dir / f"{self._feed.name}.lock") as lock:
                if not lock.acquire():
                    raise ConfigError(
                        f"changefeed '{self._feed.name}' is already running from {self._state_dir} (process"
                        f" {lock.holder}); stop it first"
                    )
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
            self._control.pause = None
            self._store.resume(self._feed.name)

    def _registered(self) -> Ending:
        known = register(self._feed, self._store, epoch=self._job_epoch)
        self._feed = self._feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch, state=self._store.url)
        self._epoch = known.epoch
        self._events = RunEvents(self._feed.name, self._store, job=self._job_epoch is not None)
        self._dead_letters = DeadLetterLog(self._feed.name, self._store)
        self._status.continue_from(known.high_water)
        if self._once:
            self._pausing.require_not_paused(self._epoch)
        if not self._pausing.wait(self._epoch):
            return "stopped"
        if finish_earlier_run(self._feed, self._store):
            return "complete"
        try:
            with ThreadPoolExecutor(1, thread_name_prefix=f"opening Spark for {self._feed.name}") as pool:
                self._say(phase="starting Spark")
                opening = self._opening = pool.submit(
                    copy_context().run, self._host.acquire, self._feed.name, self._feed.modules
                )
                try:
                    self._check_and_prepare()
                except BaseException:  # a refusal does not wait for Spark
                    opening.cancel()
                    self._host.release(self._feed.name)
                    raise
            ending = self._attempts()
            self._keep_pause()
            return ending
        except Stopped:
            return "stopped"
        finally:
            self._host.release(self._feed.name)

    def _attempts(self) -> Ending:
        while True:
            self._before = None
            try:
                if self._status.is_kept and self._control.pause is not None and not self._pause_as_asked():
                    return "stopped"
                with self._attempt() as (config, query, rangefeed):
                    self.steady = True
                    ending = self._supervise(config, query, rangefeed)
                if ending == "complete" or self._control.stop.is_set():
                    return ending
                continue  # it was left for a pause
            except Stopped:
                return "stopped"
            except (FencedError, WatchError):
                raise
            except Exception as error:
                reason: Exception = error
                final = self._final(error)
            if final is not None:
                if not self.steady or self._feed.options.on_error != "pause" or self._job_epoch is not None:
                    raise final
                if not self._pause(self._told(final), final):
                    return "stopped"
                self._retry_policy.reset()
            elif self._wait(reason, self._retry_policy.next_wait_s(reason)):
                return "stopped"

    def _told(self, error: BaseException) -> str:
        """Return *error* in one line for people, without secrets."""
        text = fitting(one_line(error), self._feed.name, job=self._job_epoch is not None)
        return mask(text, self._feed.secrets())

    def _final(self, error: Exception) -> CdcError | None:
        """Return what ends the run after an attempt failed by *error*, None if another one follows. Raises: likewise,
        of a run that has not begun.
        """
        repairable = self._may_be_repaired(error)
        if isinstance(error, FINAL) and not repairable:
            return error
        self._queries.learn(error)
        if not self.steady and not repairable:
            self._retry_policy.raise_if_fatal_on_start(error, opened=self._opened)
        if self._before is not None and self._delivered() not in (None, self._before):
            self._retry_policy.reset()
        return self._judge(error)

    def _may_be_repaired(self, error: Exception) -> bool:
        """Return whether *error* is due to a later change elsewhere: the changefeed has delivered something before."""
        if not (isinstance(error, CdcError) and error.repairable):
            return False
        found = self._delivered()
        return found is None or any(found)

    def _delivered(self) -> tuple[float, Timestamp] | None:
        """Return what was ever delivered, as `delivered` does; None while the store is out of reach."""
        with suppress(RetryableError):
            return delivered(self._feed.name, self._store)
        return None

    def _pause(self, reason: str, error: CdcError) -> bool:
        """Pause the changefeed for *error*; return True when it was resumed, False when told to stop before."""
        self._pausing.pause(self._epoch, reason, retry=not self._once)
        if self._once:
            raise error
        return self._await_resumption()

    def _pause_as_asked(self) -> bool:
        """Pause the changefeed unless it was resumed meanwhile; return as `_pause` does."""
        with self._control.pause_lock:
            reason, self._control.pause = self._control.pause, None
            if reason is None:
                return True
            self._pausing.pause(self._epoch, reason, retry=not self._once)
        if self._once:
            raise TerminalError(f"changefeed '{self._feed.name}' was paused: {reason}")
        return self._await_resumption()

    def _await_resumption(self) -> bool:
        self._status.set(retrying=None)
        self._host.release(self._feed.name)  # the pause may be long: release the memory
        self._opening = None
        return self._pausing.wait(self._epoch)

    def _keep_pause(self) -> None:
        """Save a pause that was asked for before the run ended for another reason, for the next run."""
        with self._control.pause_lock:
            if self._status.is_kept and self._control.pause is not None:
                self._pausing.pause(self._epoch, self._control.pause, retry=False)

    def _judge(self, error: Exception) -> TerminalError | None:
        """Return why no other attempt follows the one that failed; None if one does, or the run is to end anyway."""
        if self._control.stop.is_set():
            return None
        reason = self._told(error)
        return self._retry_policy.give_up_reason(error, reason, jvm_ended=self._opened and not self._host.is_alive)

    def _wait(self, reason: Exception, wait_s: float) -> bool:
        """Wait before the next attempt; return True when told to stop meanwhile."""
        text = self._told(reason)
        if self._opened and not self._host.is_alive:
            text = f"Spark's JVM is gone: {text}"
        if self._control.stop.is_set():
            log.warning("changefeed '%s': stopped in the middle of a step: %s", self._feed.name, text)
            return True
        if not wait_s:
            log.info("changefeed '%s': %s", self._feed.name, text)
            return False
        self._status.count_retry(cause_of(reason), text)
        if self._events is not None:
            self._events.retried(cause_of(reason), text, wait_s)
        log.warning(
            "changefeed '%s': %s%s; next attempt in %.1f s", self._feed.name, text, self._retry_policy.note, wait_s
        )
        owner = owner_of(reason, self._feed)
        deadline = time.monotonic() + wait_s
        while (left := deadline - time.monotonic()) > 0 and self._control.pause is None:
            self._say(phase="waiting to retry", waiting_on=owner, waiting_for=text, next_attempt_s=left)
            if self._control.stop.wait(min(left, _POLL_S)):
                return True
        self._status.set(waiting_on=None, waiting_for=None, next_attempt_s=None)
        return False

    @contextmanager
    def _attempt(self) -> Iterator[tuple[AttemptConfig, Query, Rangefeed]]:
        """Start a query from the saved progress under a new epoch; stop it and clear its scratch at the end."""
        parallelism = self._acquire()
        epoch = self._epoch = self._store.begin_attempt(self._feed.name, after=self._epoch)
        self._previous.fenced()
        self._status.keep(epoch)
        run_dir = self._state_dir / f"{self._feed.name}.run" / str(epoch)
        shutil.rmtree(run_dir.parent, ignore_errors=True)
        run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        AttemptChannel(run_dir).create()
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, run_dir.parent, ignore_errors=True)
            cleanup.callback(self._status.forget_tasks)
            self._previous.await_tasks()
            feed = self._feed.for_attempt(feed_id=self._feed.feed_id, epoch=epoch, parallelism=parallelism)
            requirements = cleanup.enter_context(required_of_hosts(feed, self._host, create=True))
            config = AttemptConfig(feed=feed, state_dir=self._state_dir, run_dir=run_dir, requirements=requirements)
            if not self._warm:
                self._say(phase="warming up")
                self._host.warm_up(replace(config, warm_up=True), stopped=self._control.stop.is_set)
                self._check_stop()
                self._warm = True
            rangefeed = feed.open_rangefeed()
            cleanup.callback(self._quietly, rangefeed.close)
            token, self._before = start_token(feed, self._store, rangefeed), self._delivered()
            moved = self._store.was_moved(feed.name)
            self._previous.await_calls(feed, scans=rangefeed.scan_progress(token) is not None, moved=moved)
            if moved:
                self._store.save_plan(feed.name, epoch, {})  # from now on, late rows of others are repeats
            tables = [schema.name for schema in rangefeed.schemas()]
            feed = feed.for_attempt(feed_id=feed.feed_id, epoch=epoch, table_names=tables)
            config = replace(config, feed=feed, start=token)
            if self._once and self._until is None:
                self._until = end_of_once(replace(feed, saved=token), self._store)
            cleanup.callback(self._quietly, self._dead_letters.look)  # the last step may have been saved since
            config = replace(config, plans=self._queries.plans(rangefeed.schemas()))
            query = self._host.start(config, stopped=self._control.stop.is_set)
            cleanup.callback(self._quietly, query.stop)
            try:
                yield config, query, rangefeed
            except DestinationLostError:
                self._quietly(lambda: keep_places(feed, self._store, rangefeed.schemas()))
                raise

    def _acquire(self) -> int:
        """Return how many slices may be read at a time, once Spark is there."""
        if not self._host.is_alive:
            self._warm = False
            self._say(phase="starting Spark")
        opening, self._opening, self._opened = self._opening, None, False
        slots = self._host.acquire(self._feed.name, self._feed.modules) if opening is None else opening.result()
        if not self._host.is_local:
            self._say(phase="waiting for executors")
            slots = self._host.await_executors(self._feed.options.executor_wait, stopped=self._control.stop.is_set)
        self._opened = True
        self._check_stop()
        return slots

    def _check_and_prepare(self) -> None:
        """Return when the changefeed can run. Raises: as the function of that name.

        A check does not tell an outage from a refusal, so one that has run before waits for as long as it lasts.
        """

        def check() -> None:
            check_and_prepare(self._feed, self._store, self._check_executors, self._queries.delivered)

        self._patiently(check, self._may_be_repaired)

    def _check_executors(self, schemas: Sequence[TableSchema]) -> None:
        """Return when every executor can run tasks of the changefeed. Raises: ConfigError, QueryHostError."""

        def check() -> None:
            self._acquire()
            self._say(phase="checking executors")
            check_executors(self._feed, schemas, self._host, self._state_dir, stopped=self._control.stop.is_set)
            self._check_stop()

        def passes(error: Exception) -> bool:
            its_own = isinstance(error, QueryHostError) and self._retry_policy.is_fatal_in_preflight(error)
            return isinstance(error, RetryableError) and not its_own

        if not self._host.is_local:
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
                if self._control.pause is not None and not self._pause_as_asked():
                    raise Stopped from None

    def _quietly(self, end: Callable[[], object]) -> None:
        """Call *end* at the end of an attempt; an error of it is only logged."""
        try:
            end()
        except Exception as error:
            text = self._told(error)
            log.warning("changefeed '%s': the clean-up after an attempt failed: %s", self._feed.name, text)

    def _check_stop(self) -> None:
        if self._control.stop.is_set():
            raise Stopped

    def _supervise(self, config: AttemptConfig, query: Query, rangefeed: Rangefeed) -> Ending:
        """Watch the query until it is to end, and return as `_finish` does. Raises: the error that ended it before."""
        channel = config.channel
        sampler = StatusSampler(
            self._feed,
            channel,
            local=self._host.is_local,
            count_dead_letters=self._dead_letters.look,
            silent_since=self.status.source_silent_since,
            retrying=self.status.retrying,
            start=config.start,
        )
        saved = AttemptProgress(self._feed.name, self._store, channel)
        probe = SourceProbe(lambda: source_clock(replace(config.feed, saved=config.start)))
        requests = ControlRequests(self._feed.name, self._store, channel)
        self._status.set(phase="running")
        assert self._events is not None
        self._events.started(self._epoch, self.status.high_water)
        complete = False
        while not complete and self._control.pause is None and not self._control.stop.wait(_POLL_S):
            if not query.is_active:
                sampler.repeat_warnings()
                raise query.failure()
            progress = saved.poll(until=self._until or self._feed.options.end)
            self._say(**sampler.look(progress, rangefeed.scan_progress(progress.token)))
            probe.look(progress.tally.value(metrics.STEPS))
            self._events.saved(progress)
            requests.poll()
            self._host.maintain(executor_wait_s=self._feed.options.executor_wait)
            reached = self._until is not None and progress.resolved >= self._until
            complete = reached or all_delivered(self._feed, progress)
        if complete:
            log.info("changefeed '%s': complete, resolved %s", self._feed.name, progress.frontier.high_water)
        return self._finish(config, query, rangefeed, sampler, "complete" if complete else "stopped")

    def _finish(
        self, config: AttemptConfig, query: Query, rangefeed: Rangefeed, sampler: StatusSampler, ending: Ending
    ) -> Ending:
        """Wait until the running step is saved, end the query, emit what is resolved by then, and return *ending*.

        If the step is abandoned, emit nothing and say so.
        """
        self._say(phase="stopping", shares={})
        channel = config.channel
        channel.request_stop()
        deadline = time.monotonic() + _STOP_LIMIT_S
        while query.is_active and not channel.stop_acknowledged and not self._control.abandon.is_set():
            if time.monotonic() > deadline:
                log.warning("changefeed '%s': the running step took too long and was abandoned", self._feed.name)
                break
            self._say(**sampler.look_at_tasks())
            time.sleep(_POLL_S / 5)
        if not query.is_active:
            sampler.repeat_warnings()
            raise query.failure()
        query.stop()
        if not channel.stop_acknowledged:
            return "abandoned" if self._control.abandon.is_set() else "given up"
        compare_places(config.feed, self._store, rangefeed.schemas())
        emit_last_resolved_mark(config.feed, self._store)
        progress = self._store.load(self._feed.name)
        if progress is not None:
            if self._events is not None:
                self._events.saved(progress)
            self._say(**sampler.look(progress, rangefeed.scan_progress(progress.token)))
        drop_history(config.feed, rangefeed, progress)
        return ending

    def _end(self, phase: str, error: BaseException | None = None) -> None:
        """Show for good how the run ended."""
        reason = None if error is None else self._told(error)
        self._status.forget_tasks()
        self._status.set(phase=phase, error=reason, retrying=None)
        if self._events is not None:
            self._events.ended(phase, error, reason)
        self._status.keep_now()
