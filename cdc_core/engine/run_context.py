"""What the parts of one run share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.run_control import RunControl, Stopped
from cdc_core.engine.run_status import RunStatus
from cdc_core.engine.saved_progress import delivered
from cdc_core.errors import RetryableError
from cdc_core.masking import mask
from cdc_core.remedies import fitting
from cdc_core.store.progress import ProgressStore
from cdc_core.timestamp import Timestamp

__all__ = ["RunContext"]

log = logging.getLogger(__name__)


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
        """Call *end* at the end of an attempt; an error of it is only logged."""
        try:
            end()
        except Exception as error:
            text = self.shown(error)
            log.warning("changefeed '%s': the clean-up after an attempt failed: %s", self.feed.name, text)
