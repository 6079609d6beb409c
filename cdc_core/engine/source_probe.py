"""Detects a source that no longer answers although its connections stay open, as behind a frozen proxy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cdc_core.engine.error_text import one_line
from cdc_core.errors import RetryableRangefeedError, is_outage
from cdc_core.telemetry.status import behind_text

_SILENT_S = 60.0
"""A step takes longer than this for good reasons, such as a large transaction. Then the source is asked."""
_EVERY_S = 15.0
_FAILURES = 3
"""So many failures in a row end the attempt."""
_AT_ONCE_S = 1.0
"""A failure within this time is an answer, such as that of a server with too many clients: somebody is there."""


class SourceProbe:
    """Calls *ask*, which opens a new connection to the source, while no step is saved; gives up if it gets no answer.

    Used by the thread of a run during one attempt. *ask* is called in a thread of its own, one at a time; one that
    does not return for as long as a source may be silent has failed.
    """

    def __init__(self, ask: Callable[[], object], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._steps: float | None = None
        self._saved_at = self._next_at = clock()
        self._asking: threading.Thread | None = None
        self._asked_at = 0.0
        self._failures: list[str] = []

    def poll(self, steps: float) -> None:
        """Note how many *steps* are saved. Raises: RetryableRangefeedError when the source does not answer."""
        now = self._clock()
        if steps != self._steps:
            self._steps, self._saved_at, self._next_at = steps, now, now + _SILENT_S
            self._failures.clear()
        if self._asking is not None and not self._asking.is_alive():
            self._asking = None
        if self._asking is not None:
            if now - self._asked_at < _SILENT_S:
                return
            self._failures += ["no answer"] * _FAILURES
        if len(self._failures) >= _FAILURES:
            raise RetryableRangefeedError(
                f"no step has been saved for {behind_text(now - self._saved_at)}, and the source does not answer on a "
                f"new connection: {self._failures[-1]}"
            )
        if now >= self._next_at:
            self._next_at, self._asked_at = now + _EVERY_S, now
            self._asking = threading.Thread(target=self._probe, name="source probe", daemon=True)
            self._asking.start()

    def _probe(self) -> None:
        began = self._clock()
        try:
            self._ask()
        except Exception as error:
            if is_outage(error) and self._clock() - began >= _AT_ONCE_S:
                self._failures.append(one_line(error))
                return
        self._failures.clear()
