"""Measures what sources retain for changefeeds that no run measures: paused, failed, retrying, stopped ones."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Self

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.errors import FencedError, TerminalError
from cdc_core.masking import mask
from cdc_core.store.progress import ProgressStore
from cdc_core.store.reports import Report, reports
from cdc_core.telemetry.logs import logged_as

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""What was measured within this time, by a run or by another process, is not measured again."""
_POLL_S = 15.0
_AFTER_FAILURE_S = 3 * EVERY_S
"""After a failure another process has its turn first: it may have what this one lacks."""


class HistoryMeter:
    """Measures the changefeeds in the store at *url* that have not been measured for a minute, inside the context.

    Nodes, servers and runs have one each; of the processes of a store, one measures a changefeed at a time. *resolve*
    returns a changefeed as it would run here, or None for one that others measure; it is called in other threads, and
    what it raises says why this process cannot measure. Each source has a thread of its own: one that hangs delays no
    other, and is not asked again until it answers.
    """

    def __init__(self, url: str, resolve: Callable[[Report], ResolvedChangefeed | None]) -> None:
        self._store = ProgressStore(url)
        self._resolve = resolve
        self._over = threading.Event()
        self._threads: dict[Sequence[str], tuple[threading.Thread, float]] = {}
        self._complaints: dict[str, str] = {}
        self._notices: dict[str, str | None] = {}
        self._again_at: dict[str, float] = {}

    def __enter__(self) -> Self:
        threading.Thread(target=self._work, name="history of sources", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()  # what hangs is left behind

    def tick(self) -> list[threading.Thread]:
        """Begin to measure what is due, and return the threads that do. Raises: CdcError as the store does."""
        due: dict[Sequence[str], list[Report]] = {}
        found = reports(self._store)
        self._forget_all_but({report.known.name for report in found})
        for report in found:
            if self._is_due(report):
                due.setdefault(tuple(report.known.sources), []).append(report)
        begun = []
        for sources, feeds in due.items():
            before, since = self._threads.get(sources, (None, 0.0))
            if before is not None and before.is_alive():
                if time.monotonic() - since >= EVERY_S:
                    for report in feeds:
                        self._complain(report.known.name, "its source does not answer")
                continue
            thread = threading.Thread(target=self._measure_all, args=[feeds], name="history of a source", daemon=True)
            self._threads[sources] = thread, time.monotonic()
            thread.start()
            begun.append(thread)
        return begun

    def _work(self) -> None:
        with closing(self._store):
            while not self._over.wait(_POLL_S):  # at first too: what begins to run now measures by itself
                try:
                    self.tick()
                except Exception as error:  # of the store, mostly: whoever needs it says so
                    log.debug("cannot measure the history that sources retain: %s", error)

    def _forget_all_but(self, names: Collection[str]) -> None:
        """Forget changefeeds that are gone: each run of a schedule has a name of its own."""
        for of_names in (self._complaints, self._notices, self._again_at):
            for gone in of_names.keys() - names:
                of_names.pop(gone, None)
        self._threads = {sources: begun for sources, begun in self._threads.items() if begun[0].is_alive()}

    def _is_due(self, report: Report) -> bool:
        """Return whether the source may hold history for the changefeed of *report* that was not measured lately."""
        if report.progress is None or not report.holds_history:
            return False
        age_s = report.gauges_age_s
        return (age_s is None or age_s >= EVERY_S) and time.monotonic() >= self._again_at.get(report.known.name, 0.0)

    def _measure_all(self, feeds: Sequence[Report]) -> None:
        for report in feeds:
            name = report.known.name
            with logged_as(name):
                if self._over.is_set():
                    return
                try:
                    self._measure(report)
                except FencedError:  # an attempt has begun
                    continue
                except BaseException as error:  # a plugin's may be SystemExit
                    self._again_at[name] = time.monotonic() + _AFTER_FAILURE_S
                    self._complain(name, one_line(error))
                else:
                    self._complain(name, "")

    def _measure(self, report: Report) -> None:
        known, feed = report.known, self._resolve(report)
        progress = None if feed is None else self._store.progress.load(known.name)
        if (
            feed is None
            or progress is None
            or not self._store.progress.claim_gauges(known.name, known.epoch, every_s=EVERY_S)
        ):
            return
        feed = replace(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), saved=progress.token)
        try:
            with closing(Parts(feed).open_history()) as history:
                gauges, notice = history.metrics(), history.notice()
        except BaseException as error:
            self._store.changefeeds.require_newest(
                known.name, known.epoch
            )  # an attempt that begins ends old connections
            raise TerminalError(mask(one_line(error), feed.secrets())) from None
        self._store.progress.save_gauges(known.name, known.epoch, gauges)
        if notice is not None and notice != self._notices.get(known.name):
            log.warning("changefeed '%s': %s", known.name, mask(notice, feed.secrets()))
        self._notices[known.name] = notice

    def _complain(self, name: str, why: str) -> None:
        """Log *why* it cannot be measured, if that is new."""
        if why and why != self._complaints.get(name):
            log.warning(
                "changefeed '%s': cannot measure what its source retains: %s",
                name,
                why,
                extra={"changefeed": name},
            )
        self._complaints[name] = why
