"""Where an attempt starts."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import check_and_prepare_sink
from cdc_core.engine.places import compare_places
from cdc_core.frontier import Frontier
from cdc_core.rangefeed import Rangefeed
from cdc_core.rangefeed_values import Token
from cdc_core.span import Span
from cdc_core.store.progress import Progress, ProgressStore
from cdc_core.store.values import ChangefeedRecord
from cdc_core.timestamp import Timestamp

log = logging.getLogger(__name__)


def register(feed: ResolvedChangefeed, store: ProgressStore, *, epoch: int | None = None) -> ChangefeedRecord:
    """Return the changefeed as the store knows it, added if it is new. Raises: as `ChangefeedRecords.register`."""
    changes_tables = feed.rangefeed.registration.changes_tables
    return store.changefeeds.register(feed.name, feed.definition(), changes_tables=changes_tables, epoch=epoch)


def start_token(feed: ResolvedChangefeed, store: ProgressStore, rangefeed: Rangefeed) -> Token:
    """Return the token that attempt `feed.epoch` starts from. Everything that its query relies on is saved.

    Raises: FencedError; DestinationLostError; whatever the rangefeed raises.
    """
    name = feed.name
    progress = store.progress.load(name)
    if progress is not None:
        progress = _with_new_history(feed, store, progress)
    saved = None if progress is None else progress.token
    chosen = store.rescans.initial_scans(name)
    if chosen:
        with closing(Parts(feed).open_rangefeed(initial_scans=chosen)) as joining:
            saved = joining.start(saved, lambda intent: store.progress.save_intent(name, feed.epoch, intent))
    token = rangefeed.start(saved, lambda intent: store.progress.save_intent(name, feed.epoch, intent))
    schemas = rangefeed.schemas()
    spans = [Span(schema.name.full) for schema in schemas]
    if progress is not None and not {span.table for span in spans} <= {span.table for span, _ in progress.frontier}:
        check_and_prepare_sink(feed, schemas)  # tables may have joined since the run began
    if progress is None:
        progress = Progress(token=token, frontier=Frontier(spans), latest=Timestamp(), counters={})
    store.progress.save(name, feed.epoch, replace(progress, token=token, frontier=progress.frontier.watching(spans)))
    compare_places(feed, store, schemas)
    if chosen:
        waiting = {table: wanted for table, wanted in chosen.items() if table not in feed.tables}
        store.rescans.choose_initial_scans(name, feed.epoch, waiting)
    scan = rangefeed.scan_progress(token)
    if scan is not None:
        log.info("changefeed '%s': scan begins at %d of %d %s", name, scan.done, scan.total, scan.unit)
    else:
        log.info("changefeed '%s': no scan; following the log after %s", name, progress.latest)
    return token


def _with_new_history(feed: ResolvedChangefeed, store: ProgressStore, progress: Progress) -> Progress:
    """Return *progress* as it is, or, if that was asked for, with history that the source begins to keep now.

    All tables are scanned then, from now on and not from the cursor. What is resolved stays so, and rows are later than
    all that were delivered. Repeatable: a crash before the new token is saved leaves the rescan waiting, and the intent
    in place of the token.
    """
    waiting = store.rescans.waiting(feed.name, new_slot=True)
    if not waiting:
        return progress
    scanning = replace(feed, options=replace(feed.options, initial_scan="yes", cursor=None))
    with closing(Parts(scanning).open_planner()) as planner:
        began = max(progress.latest, planner.now())
    with closing(Parts(scanning).open_rangefeed()) as rangefeed:
        rangefeed.drop(progress.token)
        token = rangefeed.start(None, lambda intent: store.progress.save_intent(feed.name, feed.epoch, intent))
    progress = replace(progress, token=token, latest=began)
    store.progress.save(feed.name, feed.epoch, progress)
    store.rescans.begin(feed.name, feed.epoch, [found.number for found in waiting], began)
    log.info(
        "changefeed '%s': the source started a new history; rescanning all tables, whose rows get timestamps after %s",
        feed.name,
        began,
    )
    return progress
