"""A job that has ended for good: what it holds at its source is dropped, in a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from cdc_core.engine.error_text import one_line
from cdc_core.errors import FencedError, RetryableError
from cdc_core.jobs.definitions import Definitions
from cdc_core.store.job_values import Ended
from cdc_core.telemetry.logs import logged_as

__all__ = ["Reverting"]

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
        """Give up between two attempts; another node goes on."""
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
            except BaseException as error:  # a plugin's may be SystemExit: the job must not wait for it for ever
                self.reason = one_line(error)
                return "not reverted"
            else:
                self.reason = None
                return "reverted"
