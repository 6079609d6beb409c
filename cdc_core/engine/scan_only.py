"""A changefeed that only scans: when it is complete, and how its source then forgets it."""

from __future__ import annotations

import logging
from contextlib import closing

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.masking import mask
from cdc_core.rangefeed import Rangefeed
from cdc_core.store.progress import Progress, ProgressStore

__all__ = ["drop_history", "finish_earlier_scan", "scan_delivered"]

log = logging.getLogger(__name__)


def scan_delivered(feed: ResolvedChangefeed, progress: Progress | None) -> bool:
    """Return whether *feed* only scans and *progress* says that its whole scan is durable. Then no step follows."""
    return feed.options.initial_scan == "only" and progress is not None and bool(progress.frontier.high_water)


def drop_history(feed: ResolvedChangefeed, rangefeed: Rangefeed, progress: Progress | None) -> None:
    """Drop what the source keeps for a changefeed whose scan is delivered; do nothing for any other.

    Driver, when no step runs and none will. A failure is only a warning: the rows are delivered, and the next run tries
    again.
    """
    if progress is None or not scan_delivered(feed, progress):
        return
    try:
        rangefeed.drop(progress.token)
    except Exception as error:
        log.warning(
            "changefeed '%s' is complete, but %s still retains history for it, which uses disk space: %s; run the"
            " changefeed once more to drop it",
            feed.name,
            feed.rangefeed.owner,
            mask(one_line(error), feed.secrets()),
        )


def finish_earlier_scan(feed: ResolvedChangefeed, store: ProgressStore) -> bool:
    """Return whether an earlier run of *feed* delivered its whole scan; drop what the source still keeps for it."""
    progress = store.load(feed.name)
    if progress is None or not scan_delivered(feed, progress):
        return False
    log.info(
        "changefeed '%s': an earlier run delivered the scan, as of %s; to scan again, use another name",
        feed.name,
        progress.frontier.high_water,
    )
    with closing(feed.open_rangefeed()) as rangefeed:
        drop_history(feed, rangefeed, progress)
    return True
