"""When a changefeed that has begun may be read anew from its source."""

from __future__ import annotations

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import check_source, source_clock
from cdc_core.errors import ConfigError
from cdc_core.store.progress import ChangefeedRecord, ProgressStore

__all__ = ["ask_new_history", "require_rescannable"]


def require_rescannable(store: ProgressStore, feed: ResolvedChangefeed, known: ChangefeedRecord) -> ResolvedChangefeed:
    """Return *feed*, for the attempt that the store knows, if its tables can be scanned again. Raises: ConfigError."""
    if store.progress.load(feed.name) is None:
        raise ConfigError(f"changefeed '{feed.name}' has not begun yet; its first run reads all tables")
    if feed.options.initial_scan == "only":
        raise ConfigError(f"changefeed '{feed.name}' only scans; to scan again, give it another name")
    feed = feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch)
    end = feed.options.end
    if end is not None and end <= source_clock(feed):
        raise ConfigError(
            f"changefeed '{feed.name}' ends at end_time, {end}, and what its tables held then can no longer be"
            " read; to scan them now, give it another name"
        )
    return feed


def ask_new_history(store: ProgressStore, feed: ResolvedChangefeed, known: ChangefeedRecord) -> None:
    """Have the next run give up the history that the source retains, and begin with all rows of all tables.

    The changefeed must not run. Raises: ConfigError; what the source raises. Changes nothing then.
    """
    check_source(require_rescannable(store, feed, known))
    store.rescans.ask(feed.name, table=None, new_slot=True)
