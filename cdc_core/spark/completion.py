"""A changefeed that only scans: when it is complete, and what becomes then of all that its source holds for it."""

from __future__ import annotations

import logging
from contextlib import closing

from cdc_core.config.resolved import Job
from cdc_core.masking import mask
from cdc_core.rangefeed import Rangefeed
from cdc_core.spark.reasons import described
from cdc_core.store.progress import Progress, ProgressStore

__all__ = ["drop_history", "scan_delivered", "was_complete"]

log = logging.getLogger(__name__)


def scan_delivered(job: Job, progress: Progress | None) -> bool:
    """Return whether *job* only scans and *progress* says that all of its scan is durable: no step follows."""
    return job.options.initial_scan == "only" and progress is not None and bool(progress.frontier.high_water)


def drop_history(job: Job, rangefeed: Rangefeed, progress: Progress | None) -> None:
    """Let the source forget a changefeed whose scan is delivered; do nothing for any other.

    Driver, when no step of it runs or will. A source that fails is warned of: the rows are delivered all the same, and
    the next run tries again.
    """
    if progress is None or not scan_delivered(job, progress):
        return
    try:
        rangefeed.drop(progress.token)
    except Exception as error:
        log.warning(
            "changefeed '%s' is complete, but %s still keeps history for it, which costs disk space there: %s; run it"
            " once more, which only lets go of that",
            job.name,
            job.rangefeed.owner,
            mask(described(error), job.secrets()),
        )


def was_complete(job: Job, store: ProgressStore) -> bool:
    """Return whether an earlier run of *job* has delivered all that it is for; its source forgets it, if it has not."""
    progress = store.load(job.name)
    if progress is None or not scan_delivered(job, progress):
        return False
    log.info(
        "changefeed '%s': its scan was delivered by an earlier run, as of %s; to scan again give it another name",
        job.name,
        progress.frontier.high_water,
    )
    with closing(job.open_rangefeed()) as rangefeed:
        drop_history(job, rangefeed, progress)
    return True
