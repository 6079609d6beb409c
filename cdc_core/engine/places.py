"""Whether the destination still holds what the changefeed has delivered: places by name, compared by identity.

A topic that was deleted and created again has the same name, and lacks every row from before. A schema registry that
was emptied lacks the ids that messages have. What each place was is saved with the progress. It is compared when an
attempt starts and when the changefeed stops, and an error says once what was lost: the next run accepts what is there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import encoded_tables
from cdc_core.errors import DestinationLostError
from cdc_core.remedies import ALL_AGAIN, RUN_AGAIN
from cdc_core.schema import TableSchema
from cdc_core.store.progress import ProgressStore

_SURE_AFTER_S = 4.0
_ASK_S = 0.5


def compare_places(feed: ResolvedChangefeed, store: ProgressStore, schemas: Sequence[TableSchema]) -> None:
    """Return when each place is the one that was saved, and save those that are new.

    A place must be missing for a few seconds: servers of a cluster learn of one at different times. Raises:
    DestinationLostError, when what is there now was saved; FencedError.
    """
    saved = store.progress.places(feed.name)
    deadline = time.monotonic() + _SURE_AFTER_S
    found = _found(feed, store, schemas)
    while any(name in saved and found[name] is None for name in found) and time.monotonic() < deadline:
        time.sleep(_ASK_S)
        found = _found(feed, store, schemas)
    _save(feed, store, saved, found)
    for name, identity in found.items():
        if name in saved and identity != saved[name]:
            happened = "was deleted" if identity is None else "was deleted and created again"
            raise DestinationLostError(
                f"{name} {happened} since the changefeed delivered there, so data that consumers need is gone."
                f" {RUN_AGAIN.capitalize()} to continue without that data. {ALL_AGAIN}"
            )


def keep_places(feed: ResolvedChangefeed, store: ProgressStore, schemas: Sequence[TableSchema]) -> None:
    """Save what each place is now: a DestinationLostError has told what happened to it. Raises: FencedError."""
    _save(feed, store, store.progress.places(feed.name), _found(feed, store, schemas))


def _found(feed: ResolvedChangefeed, store: ProgressStore, schemas: Sequence[TableSchema]) -> Mapping[str, str | None]:
    feed = feed.for_attempt(feed_id=feed.feed_id, epoch=feed.epoch, table_names=[schema.name for schema in schemas])
    with closing(Parts(feed).open_destination()) as destination:
        found = destination.identities(store.topics.of(feed.name) if feed.routes else ())
        tables = [] if feed.routes else encoded_tables(feed, destination, schemas)
        return {**found, **Parts(feed).open_encoder().identities(tables)}


def _save(
    feed: ResolvedChangefeed, store: ProgressStore, saved: Mapping[str, str], found: Mapping[str, str | None]
) -> None:
    known = {name: identity for name, identity in {**saved, **found}.items() if identity is not None}
    if known != saved:
        store.progress.save_places(feed.name, feed.epoch, known)
