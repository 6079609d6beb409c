"""A changefeed that ends by itself: when it is complete, and how its source then forgets it."""

from __future__ import annotations

import logging
from contextlib import closing

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.engine.time_range import TimeRange
from cdc_core.masking import mask
from cdc_core.rangefeed import Rangefeed
from cdc_core.store.progress import Progress, ProgressStore

log = logging.getLogger(__name__)


def all_delivered(feed: ResolvedChangefeed, progress: Progress | None) -> bool:
    """Return whether *progress* says that all that *feed* will ever deliver is durable. Then no step follows.

    That is the whole scan with initial_scan='only', and everything up to end_time if there is one.
    """
    scans_only = feed.options.initial_scan == "only"
    if progress is None or not (resolved := progress.last_mark(scans_only=scans_only)):
        return False
    return scans_only or TimeRange.of(feed.options).over(resolved)


def drop_history(feed: ResolvedChangefeed, rangefeed: Rangefeed, progress: Progress | None) -> None:
    """Drop what the source keeps for a changefeed that has delivered everything; do nothing for any other.

    Driver, when no step runs and none will. A failure is only a warning: the rows are delivered, and the next run tries
    again.
    """
    if progress is None or not all_delivered(feed, progress):
        return
    try:
        rangefeed.drop(progress.token)
    except Exception as error:
        log.warning(
            "changefeed '%s' is complete, but %s still retains history for it on disk: %s; run the changefeed once"
            " more to drop it",
            feed.name,
            feed.rangefeed.owner,
            mask(one_line(error), feed.secrets()),
        )


def finish_earlier_run(feed: ResolvedChangefeed, store: ProgressStore) -> bool:
    """Return whether an earlier run of *feed* delivered everything; drop what the source still keeps for it.

    False as well when that run ended before its last resolved mark, which this one will emit.
    """
    progress = store.progress.load(feed.name)
    if progress is None or not all_delivered(feed, progress):
        return False
    resolved = progress.last_mark(scans_only=feed.options.initial_scan == "only")
    if feed.options.resolved is not None and progress.emitted < resolved:
        return False
    if feed.options.initial_scan == "only":
        what = f"the scan, as of {resolved}; to scan again, choose another name"
    else:
        what = f"everything up to end_time, {resolved}; to continue, choose another name"
    log.info("changefeed '%s': an earlier run delivered %s", feed.name, what)
    with closing(Parts(feed).open_rangefeed()) as rangefeed:
        drop_history(feed, rangefeed, progress)
    return True
