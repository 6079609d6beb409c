"""What the driver logs of an attempt, where a person looks for it.

Warnings of planner, coordinator and source; new dead letters; and, for the option `log_slow`, calls that have not
returned and slices that took long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_channel import Activity, AttemptChannel
from cdc_core.engine.slices import SliceReport
from cdc_core.masking import mask
from cdc_core.telemetry.stages import STAGES

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Call:
    """A stage of a task: when it was entered, and after how long it is logged next."""

    stage: str
    since: float
    next_s: float


class SlowCalls:
    """Warns of each task of changefeed *name* that has been in one stage for longer than *limit_s*.

    Again when that has doubled, and once when it is over. *owners* names the component of each stage, *masked* masks
    what that says. Without *limit_s* it does nothing.
    """

    def __init__(
        self,
        name: str,
        limit_s: float | None,
        *,
        owners: Mapping[str, str],
        masked: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._limit_s = limit_s
        self._owners = owners
        self._masked = masked
        self._clock = clock
        self._calls: dict[tuple[str, int, int], _Call] = {}

    def update(self, tasks: Sequence[Activity]) -> None:
        """Log what is new among *tasks*. Called a few times a second."""
        if self._limit_s is None:
            return
        now, going_on = self._clock(), set()
        for task in tasks:
            key = task.role, task.process, task.thread
            call = self._calls.get(key)
            if call is not None and (call.stage != task.stage or now - task.for_s > call.since + self._limit_s):
                self._end(key, now)
                call = None
            if task.for_s < (self._limit_s if call is None else call.next_s):
                going_on.add(key)
                continue
            self._calls[key] = _Call(task.stage, now - task.for_s, 2 * task.for_s)
            going_on.add(key)
            why = "" if task.repeat is None else f": {self._masked(task.repeat.reason)}"
            log.warning(
                "changefeed '%s': slow: %s (process %d) has been waiting %.1f s for %s%s",
                self._name,
                task.role,
                task.process,
                task.for_s,
                self._owners[task.stage],
                why,
            )
        for key in self._calls.keys() - going_on:
            self._end(key, now)

    def _end(self, key: tuple[str, int, int], now: float) -> None:
        call, (role, process, _) = self._calls.pop(key), key
        log.warning(
            "changefeed '%s': slow: %s (process %d) resumed after waiting %.1f s for %s",
            self._name,
            role,
            process,
            now - call.since,
            self._owners[call.stage],
        )


def slow_slices(step: Sequence[SliceReport], limit_s: float) -> list[str]:
    """Return one line for each slice of a finished step that took longer than *limit_s*."""
    return [
        f"slow: slice {report.planned.info.index + 1} of {report.planned.slices} of step {report.planned.info.step}"
        f" ({_spans(report)}) took"
        f" {report.seconds:.1f} s for {report.rows:,} rows: "
        + ", ".join(f"{stage} {report.stages.get(stage, 0.0):.1f} s" for stage in STAGES)
        for report in step
        if report.seconds >= limit_s
    ]


def _spans(report: SliceReport) -> str:
    """Return the tables of the slice."""
    tables = sorted({mark.span.table for mark in report.marks})
    return ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")


class AttemptLog:
    """Logs for the driver what comes through *channel* from the attempt of *feed*."""

    def __init__(self, feed: ResolvedChangefeed, channel: AttemptChannel) -> None:
        self._channel = channel
        self._name, self._source = feed.name, feed.rangefeed.owner
        self._secrets = feed.secrets()
        self._logged: str | None = None

    def repeat_warnings(self) -> None:
        """Log what is new since the last call. Cheap."""
        for line in self._channel.warnings():
            log.warning("changefeed '%s': %s", self._name, mask(line, self._secrets))

    def source_warning(self) -> str | None:
        """Return what the source warns of now, masked. Logs when that begins, changes and ends."""
        told = self._channel.source_warning()
        text = None if told is None else mask(told, self._secrets)
        if text != self._logged:
            if text is None:
                log.info("changefeed '%s': %s: no longer: %s", self._name, self._source, self._logged)
            else:
                log.warning("changefeed '%s': %s: %s", self._name, self._source, text)
            self._logged = text
        return text


_MAX_LOGGED = 10
"""Maximum number of new dead letters that are logged individually."""


class DeadLetterLog:
    """Warns, in the driver, of each row of changefeed *name* that becomes a dead letter from now on."""

    def __init__(self, name: str, store: ProgressStore) -> None:
        self._name = name
        self._store = store
        self._logged = max((letter.number for letter in store.dead_letters.of(name)), default=0)

    def poll(self) -> int:
        """Log the new ones, and return how many dead letters there are. Raises: RetryableError."""
        waiting = self._store.dead_letters.of(self._name)
        new = [letter for letter in waiting if letter.number > self._logged]
        for letter in new[:_MAX_LOGGED]:
            log.warning(
                "changefeed '%s': refused the row of table %s with key %s, updated %s (stage %s): %s",
                self._name,
                letter.table,
                letter.key,
                letter.updated,
                letter.stage,
                letter.error,
            )
        if len(new) > _MAX_LOGGED:
            log.warning("changefeed '%s': refused %d more rows", self._name, len(new) - _MAX_LOGGED)
        if new:
            self._logged = new[-1].number
        return len(waiting)
