"""The driver of a run: attempts, retries with back-off, a clean stop, and the status."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.checks import check_dead_letters, check_encoder, check_sink, check_source, prepare_sink
from cdc_core.engine.dead_letter_log import DeadLetterLog
from cdc_core.engine.error_text import one_line, owner_of
from cdc_core.engine.fencing import RunLock, await_idle
from cdc_core.engine.pausing import Pausing
from cdc_core.engine.resolved_marks import emit_last_resolved_mark
from cdc_core.engine.scan_only import drop_history, finish_earlier_scan, scan_delivered
from cdc_core.engine.starting import start_token
from cdc_core.engine.status_sampler import StatusSampler
from cdc_core.engine.stop_flag import StopFlag
from cdc_core.errors import (
    CdcError,
    ConfigError,
    ContractError,
    FencedError,
    RetryableError,
    RowError,
    TerminalError,
)
from cdc_core.masking import mask
from cdc_core.rangefeed import Rangefeed, Token
from cdc_core.spark.log_file import keep_newest
from cdc_core.spark.query import failure_of, start_query, warm_up
from cdc_core.spark.session import close_session, end_jvm, is_alive, is_local, open_session, require_java
from cdc_core.store.progress import Progress, ProgressStore
from cdc_core.telemetry.activity import activity_directory
from cdc_core.telemetry.status import Status
from cdc_core.timestamp import Timestamp

__all__ = ["run"]

log = logging.getLogger(__name__)

_POLL_S = 0.1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_LIMIT_S = 120.0
_STEP_GIVEN_UP, _STEP_ABANDONED = 1, 130
"""Exit statuses of a stop that left a step unsaved: it took too long, or a second signal came."""


def run(
    feed: ResolvedChangefeed,
    *,
    store: ProgressStore,
    state_dir: Path,
    once: bool,
    status: Callable[[Status], None],
    resume_command: str | None = None,
) -> int:
    """Run the changefeed until it is stopped, complete, or fails for good; return the exit status.

    With *once* it is complete when everything that the source had committed at the start is durable and resolved. With
    initial_scan=only it is complete when the scan is; then the source keeps nothing for it any more, and another run
    finds nothing to do. After SIGINT or SIGTERM the running step ends and is saved. A second signal abandons the step:
    exit status 130. A step that takes too long is abandoned too: exit status 1. *status* is called a few times a
    second, from this thread.

    With on_error=pause an error that no retry can cure pauses a changefeed that has run: this closes Spark, waits until
    the progress store says that the changefeed was resumed, and continues from the last saved progress. A run that
    finds the changefeed paused waits too, before it touches source or sink. *resume_command* is the command that the
    messages suggest. With *once* nothing waits: the changefeed is paused all the same, and the run fails.

    Raises: ConfigError before anything is created on the source or at the sink; any other CdcError when the changefeed
    ended with it. Errors that a retry may cure are not raised: they are logged, shown in the status, and retried.
    """
    require_java()
    state_dir = state_dir.absolute()
    state_dir.mkdir(parents=True, exist_ok=True)
    with RunLock(state_dir / f"{feed.name}.lock") as lock:
        if not lock.acquire():
            raise ConfigError(
                f"changefeed '{feed.name}' is already running from {state_dir} (process {lock.holder}); stop it first"
            )
        known = store.register(feed.name, feed.definition())
        feed = feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch, state=store.url)
        return _Run(feed, store, state_dir, status, once=once, resume_command=resume_command).run()


class _Stopped(Exception):  # noqa: N818
    """Told to stop while nothing was running yet."""


class _ShowError(Exception):
    """The status callback failed. No retry helps; the caller knows what its own exception means."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _Run:
    def __init__(
        self,
        feed: ResolvedChangefeed,
        store: ProgressStore,
        state_dir: Path,
        status: Callable[[Status], None],
        *,
        once: bool,
        resume_command: str | None,
    ) -> None:
        # A run that is to end does not wait between steps.
        self._feed = replace(feed, min_checkpoint_frequency_s=0.0) if once else feed
        self._store = store
        self._state_dir = state_dir
        self._show = status
        self._once = once
        self._until: Timestamp | None = None
        self._status = Status(changefeed=feed.name, phase="starting")
        self._stop = threading.Event()
        self._abandon = threading.Event()
        self._session: SparkSession | None = None
        self._warm = False
        self._steady = False
        self._from: Token | None = None
        self._epoch = feed.epoch
        self._dead_letters = DeadLetterLog(feed.name, store)
        self._log_path = state_dir / f"{feed.name}.spark.log"
        command = resume_command or f"cdc resume FILE {feed.name}"
        self._pausing = Pausing(feed.name, store, command=command, say=self._say, stop=self._stop)

    def run(self) -> int:
        try:
            if self._once:
                self._pausing.refuse(self._epoch)
            with self._signals():
                if not self._pausing.wait(self._epoch):
                    return 0
                if finish_earlier_scan(self._feed, self._store):
                    return 0
            self._check()
            with self._signals():
                return self._attempts()
        except _ShowError as shown:
            raise shown.error from None
        finally:
            self._close_session()

    def _check(self) -> None:
        """Raises: ConfigError while nothing has been created yet."""
        schemas = check_source(self._feed)
        check_sink(self._feed, schemas)
        check_encoder(self._feed, schemas)
        check_dead_letters(self._feed, schemas)
        prepare_sink(self._feed, schemas)

    def _attempts(self) -> int:
        wait_s: float = self._feed.options.retry_backoff
        while True:
            self._from = None
            try:
                with self._attempt() as (config, query, rangefeed):
                    self._steady = True
                    return self._supervise(config, query, rangefeed)
            except _Stopped:
                return 0
            except (FencedError, _ShowError):
                raise
            except (TerminalError, RowError, ContractError, ConfigError) as error:
                if not self._steady or self._feed.options.on_error != "pause":
                    raise
                if not self._pause(error):
                    return 0
                wait_s = self._feed.options.retry_backoff
                continue
            except Exception as error:
                if not self._steady and self._session is not None and not is_alive(self._session):
                    raise TerminalError(
                        f"Spark's JVM ended before the changefeed began; see {self._log_path} for the reason, and check"
                        " that there is enough memory"
                    ) from None
                if not self._steady and isinstance(error, PySparkException):
                    raise TerminalError(f"Spark cannot run: {mask(str(error), self._feed.secrets())}") from None
                if not self._steady and not isinstance(error, RetryableError):
                    raise
                reason = error
            if self._advanced():
                wait_s = self._feed.options.retry_backoff
            asked_s = reason.retry_after_s if isinstance(reason, RetryableError) else None
            if self._wait(reason, max(wait_s, asked_s or 0.0)):
                return 0
            wait_s = min(wait_s * 2, self._feed.options.max_retry_backoff)

    def _pause(self, error: CdcError) -> bool:
        """Pause the changefeed for *error*; return True when it was resumed, False when told to stop before."""
        reason = mask(one_line(error), self._feed.secrets())
        self._pausing.pause(self._epoch, reason, patient=not self._once)
        if self._once:
            raise error
        if self._session is not None:  # the pause may be long: release the memory
            end_jvm(self._session)
        self._session, self._warm = None, False
        return self._pausing.wait(self._epoch)

    def _advanced(self) -> bool:
        """Return whether the last attempt saved a step."""
        with suppress(RetryableError):
            progress = self._store.load(self._feed.name)
            return self._from is not None and progress is not None and progress.token != self._from
        return False

    def _wait(self, reason: Exception, wait_s: float) -> bool:
        """Wait before the next attempt; return True when told to stop meanwhile."""
        text = mask(one_line(reason), self._feed.secrets())
        if self._session is not None and not is_alive(self._session):
            text = f"Spark's JVM is gone: {text}"
        if self._stop.is_set():
            log.warning("changefeed '%s': stopped in the middle of a step: %s", self._feed.name, text)
            return True
        log.warning("changefeed '%s': %s; next attempt in %.1f s", self._feed.name, text, wait_s)
        owner = owner_of(reason, self._feed)
        deadline = time.monotonic() + wait_s
        while (left := deadline - time.monotonic()) > 0:
            self._say(phase="waiting to retry", waiting_on=owner, waiting_for=text, next_attempt_s=left)
            if self._stop.wait(min(left, _POLL_S)):
                return True
        self._status = replace(self._status, waiting_on=None, waiting_for=None, next_attempt_s=None)
        return False

    @contextmanager
    def _attempt(self) -> Iterator[tuple[AttemptConfig, StreamingQuery, Rangefeed]]:
        """Start a query from the saved progress under a new epoch; stop it and clear its scratch at the end."""
        session = self._open_session()
        epoch = self._epoch = self._store.begin_attempt(self._feed.name, after=self._epoch)
        parallelism = max(1, session.sparkContext.defaultParallelism)
        run_dir = self._state_dir / f"{self._feed.name}.run" / str(epoch)
        shutil.rmtree(run_dir.parent, ignore_errors=True)
        activity_directory(run_dir).mkdir(parents=True)
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, run_dir.parent, ignore_errors=True)
            cleanup.callback(self._forget_tasks)
            self._await_idle()
            feed = self._feed.for_attempt(feed_id=self._feed.feed_id, epoch=epoch, parallelism=parallelism)
            config = AttemptConfig(feed=feed, state_dir=self._state_dir, run_dir=run_dir, start={})
            if not self._warm:
                self._say(phase="warming up")
                warm_up(session, replace(config, warm_up=True), stopped=self._stop.is_set)
                self._check_stop()
                self._warm = True
            rangefeed = feed.open_rangefeed()
            cleanup.callback(self._quietly, rangefeed.close)
            token = self._from = start_token(feed, self._store, rangefeed)
            tables = [schema.name for schema in rangefeed.schemas()]
            feed = feed.for_attempt(feed_id=feed.feed_id, epoch=epoch, table_names=tables)
            config = replace(config, feed=feed, start=token)
            if self._once and self._until is None:
                with closing(feed.open_planner()) as planner:
                    self._until = planner.now()
            cleanup.callback(self._quietly, self._dead_letters.look)  # the last step may have been saved since
            query = start_query(session, config)
            cleanup.callback(self._quietly, query.stop)
            yield config, query, rangefeed

    def _forget_tasks(self) -> None:
        self._status = replace(self._status, shares={}, waiting_on=None, waiting_on_s=None)

    def _quietly(self, end: Callable[[], object]) -> None:
        """Call *end* at the end of an attempt; an error of it is only logged."""
        try:
            end()
        except Exception as error:
            text = mask(one_line(error), self._feed.secrets())
            log.warning("changefeed '%s': the clean-up after an attempt failed: %s", self._feed.name, text)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _supervise(self, config: AttemptConfig, query: StreamingQuery, rangefeed: Rangefeed) -> int:
        """Watch the query until the changefeed is complete or told to stop; return the exit status, as `_finish` does.

        Raises: the error that ended the query.
        """
        sampler = StatusSampler(
            self._feed,
            config.run_dir,
            local=is_local(self._feed.spark),
            count_dead_letters=self._dead_letters.look,
        )
        self._status = replace(self._status, phase="running")
        while not self._stop.wait(_POLL_S):
            if not query.isActive:
                raise failure_of(query)
            progress = self._store.load(self._feed.name)
            assert progress is not None
            self._say(**sampler.look(progress, rangefeed.scan_progress(progress.token)))
            keep_newest(self._log_path)
            if self._complete(progress):
                log.info("changefeed '%s': complete, resolved %s", self._feed.name, progress.frontier.high_water)
                break
        return self._finish(config, query, rangefeed, sampler)

    def _complete(self, progress: Progress) -> bool:
        reached = self._until is not None and progress.frontier.high_water >= self._until
        return reached or scan_delivered(self._feed, progress)

    def _finish(
        self, config: AttemptConfig, query: StreamingQuery, rangefeed: Rangefeed, sampler: StatusSampler
    ) -> int:
        """Wait until the running step is saved, end the query, emit what is resolved by then, and return 0.

        If the step is abandoned, emit nothing and return another exit status.
        """
        self._say(phase="stopping", shares={})
        flag = StopFlag(config.run_dir)
        flag.request()
        deadline = time.monotonic() + _STOP_LIMIT_S
        while query.isActive and not flag.acknowledged and not self._abandon.is_set():
            if time.monotonic() > deadline:
                log.warning("changefeed '%s': the running step took too long and was abandoned", self._feed.name)
                break
            self._say(**sampler.look_at_tasks())
            time.sleep(_POLL_S / 2)
        if not query.isActive:
            raise failure_of(query)
        query.stop()
        if not flag.acknowledged:
            return _STEP_ABANDONED if self._abandon.is_set() else _STEP_GIVEN_UP
        emit_last_resolved_mark(config.feed, self._store)
        drop_history(config.feed, rangefeed, self._store.load(self._feed.name))
        return 0

    def _open_session(self) -> SparkSession:
        if self._session is not None and not is_alive(self._session):
            self._close_session()
        if self._session is None:
            self._say(phase="starting Spark")
            ours = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
            try:
                self._session = open_session(self._feed.name, self._feed.spark, log_path=self._log_path)
            except KeyboardInterrupt:  # a signal came while pyspark's handler was installed
                self._stop.set()
            finally:
                for number, handler in ours.items():  # pyspark's handler cancels jobs in the middle of a step
                    signal.signal(number, handler)
        self._check_stop()
        assert self._session is not None
        return self._session

    def _close_session(self) -> None:
        if self._session is not None:
            close_session(self._session)
        self._session, self._warm = None, False

    def _await_idle(self) -> None:
        """Return when no task of an earlier attempt is alive on this host."""

        def pause(seconds: float) -> None:
            self._say(phase="waiting for tasks of an earlier attempt to end")
            if self._stop.wait(seconds):
                raise _Stopped

        lock = self._state_dir / f"{self._feed.name}.tasks.lock"
        await_idle(lock, owner=f"changefeed '{self._feed.name}'", pause=pause)

    def _say(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
        try:
            self._show(self._status)
        except Exception as error:
            raise _ShowError(error) from error

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into a stop; the second one abandons the running step."""

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            if self._stop.is_set():
                self._abandon.set()
            self._stop.set()

        saved = {number: signal.signal(number, handle) for number in _STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in saved.items():
                signal.signal(number, handler)
