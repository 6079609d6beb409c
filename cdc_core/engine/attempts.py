"""The attempts of a run: each starts a query from the saved progress, and is watched until it is to end."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Literal

from cdc_core.config.parts import Parts
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.attempt_progress import AttemptProgress
from cdc_core.engine.checks import end_of_once, source_clock
from cdc_core.engine.control_requests import ControlRequests
from cdc_core.engine.driver_log import DeadLetterLog
from cdc_core.engine.finish import all_delivered, drop_history
from cdc_core.engine.host_checks import required_of_hosts
from cdc_core.engine.host_session import HostSession
from cdc_core.engine.places import compare_places, keep_places
from cdc_core.engine.planned_queries import PlannedQueries
from cdc_core.engine.query_host import Query, QueryHostError
from cdc_core.engine.resolved_marks import emit_last_resolved_mark
from cdc_core.engine.run_control import Pausing, RunContext
from cdc_core.engine.run_events import RunEvents
from cdc_core.engine.source_probe import SourceProbe
from cdc_core.engine.start_position import start_token
from cdc_core.engine.status_sampler import StatusSampler
from cdc_core.engine.takeover import PreviousAttempts
from cdc_core.errors import CdcError, DestinationLostError
from cdc_core.rangefeed import Rangefeed
from cdc_core.telemetry import metrics
from cdc_core.timestamp import Timestamp

log = logging.getLogger(__name__)

Ending = Literal["complete", "stopped", "abandoned", "given up"]

_POLL_S = 0.25
_STOP_LIMIT_S = 120.0


class Attempts:
    """The attempts of one run, after the changefeed is registered. Used by its thread."""

    def __init__(
        self,
        run: RunContext,
        session: HostSession,
        *,
        events: RunEvents,
        previous: PreviousAttempts,
        queries: PlannedQueries,
        pausing: Pausing,
    ) -> None:
        self._run = run
        self._session = session
        self._events = events
        self._previous = previous
        self._queries = queries
        self._pausing = pausing
        self._dead_letters = DeadLetterLog(run.feed.name, run.store)
        self._until: Timestamp | None = None
        """Where a run with `once` ends, once that is known."""
        self.epoch = run.feed.epoch
        self.has_begun = False
        """Whether a query was ever started."""
        self.before: tuple[float, Timestamp] | None = None
        """What had been delivered when the last attempt began; None if it did not come so far."""

    def take(self) -> Ending:
        """Begin an attempt, and return how it ended when it was told to end. Raises: the error that ended it."""
        self.before = None
        with self._begun() as (config, query, rangefeed):
            self.has_begun = True
            try:
                return self._watch(config, query, rangefeed)
            except Exception as error:
                told = isinstance(error, CdcError) and not isinstance(error, QueryHostError)
                if not (told or self._run.host.is_local):
                    self._previous.lost()
                raise

    @contextmanager
    def _begun(self) -> Iterator[tuple[AttemptConfig, Query, Rangefeed]]:
        """Start a query from the saved progress under a new epoch; stop it and clear its scratch at the end."""
        parallelism = self._session.acquire()
        epoch = self.epoch = self._run.store.changefeeds.begin_attempt(self._run.feed.name, after=self.epoch)
        self._previous.fenced()
        self._run.status.keep(epoch)
        run_dir = self._run.state_dir / f"{self._run.feed.name}.run" / str(epoch)
        shutil.rmtree(run_dir.parent, ignore_errors=True)
        run_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        AttemptChannel(run_dir).create()
        with ExitStack() as cleanup:
            cleanup.callback(shutil.rmtree, run_dir.parent, ignore_errors=True)
            cleanup.callback(self._run.status.forget_tasks)
            self._previous.await_tasks()
            feed = self._run.feed.for_attempt(feed_id=self._run.feed.feed_id, epoch=epoch, parallelism=parallelism)
            requirements = cleanup.enter_context(required_of_hosts(feed, self._run.host, create=True))
            config = AttemptConfig(feed=feed, state_dir=self._run.state_dir, run_dir=run_dir, requirements=requirements)
            self._session.warm_up(config)
            rangefeed = Parts(feed).open_rangefeed()
            cleanup.callback(self._run.quietly, rangefeed.close)
            token, self.before = start_token(feed, self._run.store, rangefeed), self._run.delivered()
            moved = self._run.store.planned_steps.was_moved(feed.name)
            self._previous.await_calls(feed, scans=rangefeed.scan_progress(token) is not None, moved=moved)
            if moved:
                # From now on, late rows of others are repeats.
                self._run.store.planned_steps.save_plan(feed.name, epoch, {})
            tables = [schema.name for schema in rangefeed.schemas()]
            feed = feed.for_attempt(feed_id=feed.feed_id, epoch=epoch, table_names=tables)
            config = replace(config, feed=feed, start=token)
            if self._run.once and self._until is None:
                self._until = end_of_once(replace(feed, saved=token), self._run.store)
            cleanup.callback(self._run.quietly, self._dead_letters.poll)  # the last step may have been saved since
            config = replace(config, plans=self._queries.plans(rangefeed.schemas()))
            query = self._run.host.start(config)
            cleanup.callback(self._run.quietly, query.stop)
            try:
                yield config, query, rangefeed
            except DestinationLostError:
                self._run.quietly(lambda: keep_places(feed, self._run.store, rangefeed.schemas()))
                raise

    def _watch(self, config: AttemptConfig, query: Query, rangefeed: Rangefeed) -> Ending:
        """Watch the query until it is to end, and return as `_finish` does. Raises: the error that ended it before."""
        channel = config.channel
        sampler = StatusSampler(
            self._run.feed,
            channel,
            local=self._run.host.is_local,
            count_dead_letters=self._dead_letters.poll,
            silent_since=self._run.status.now.source_silent_since,
            retrying=self._run.status.now.retrying,
            start=config.start,
        )
        saved = AttemptProgress(self._run.feed.name, self._run.store, channel)
        probe = SourceProbe(lambda: source_clock(replace(config.feed, saved=config.start)))
        requests = ControlRequests(self._run.feed.name, self._run.store, channel)
        self._run.status.set(phase="running")
        self._events.started(self.epoch, self._run.status.now.high_water)
        complete = has_grown = False
        while not (complete or has_grown or self._pausing.is_asked() or self._run.control.stop.wait(_POLL_S)):
            if not query.is_active:
                sampler.repeat_warnings()
                raise query.failure()
            progress = saved.poll(until=self._until or self._run.feed.options.end)
            self._run.status.say(**sampler.sample(progress, rangefeed.scan_progress(progress.token)))
            probe.poll(progress.tally.value(metrics.STEPS))
            self._events.saved(progress)
            requests.poll()
            slots, wait_s = config.feed.parallelism, self._run.feed.options.executor_wait
            has_grown = self._run.host.maintain(executor_wait_s=wait_s, slots=slots)
            reached = self._until is not None and progress.resolved >= self._until
            complete = reached or all_delivered(self._run.feed, progress)
        if complete:
            log.info("changefeed '%s': complete, resolved %s", self._run.feed.name, progress.frontier.high_water)
        elif has_grown:
            log.info("changefeed '%s' restarts after a step, to read more slices in parallel", self._run.feed.name)
        return self._finish(config, query, rangefeed, sampler, "complete" if complete else "stopped")

    def _finish(
        self, config: AttemptConfig, query: Query, rangefeed: Rangefeed, sampler: StatusSampler, ending: Ending
    ) -> Ending:
        """Wait until the running step is saved, end the query, emit what is resolved by then, and return *ending*.

        If the step is abandoned, emit nothing and say so.
        """
        self._run.status.say(phase="stopping", shares={})
        channel = config.channel
        channel.request_stop()
        deadline = time.monotonic() + _STOP_LIMIT_S
        while query.is_active and not channel.stop_acknowledged and not self._run.control.abandon.is_set():
            if time.monotonic() > deadline:
                log.warning("changefeed '%s': the running step took too long and was abandoned", self._run.feed.name)
                break
            self._run.status.say(**sampler.sample_tasks())
            time.sleep(_POLL_S / 5)
        if not query.is_active:
            sampler.repeat_warnings()
            raise query.failure()
        query.stop()
        if not channel.stop_acknowledged:
            return "abandoned" if self._run.control.abandon.is_set() else "given up"
        compare_places(config.feed, self._run.store, rangefeed.schemas())
        emit_last_resolved_mark(config.feed, self._run.store)
        progress = self._run.store.progress.load(self._run.feed.name)
        if progress is not None:
            self._events.saved(progress)
            self._run.status.say(**sampler.sample(progress, rangefeed.scan_progress(progress.token)))
        drop_history(config.feed, rangefeed, progress)
        return ending
