"""Comparing what a changefeed has delivered with its source."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.classes import needing
from cdc_core.store.job_values import FINISHED, RESTING
from cdc_core.store.liveness import is_alive
from cdc_core.store.progress import ProgressStore
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.auditing.audit import Audit

_WAIT_S = 60.0


def audit(
    store: ProgressStore | None,
    feed: ResolvedChangefeed,
    directory: Path,
    *,
    at: Timestamp | None,
    wait_s: float | None,
    most_shown: int,
) -> Audit:
    """Return the audit of *feed*, as `Audit` makes it, with its progress in *store*, None when there is none.

    Unless *wait_s* says otherwise, it waits a minute for a resolved mark, and not at all while nothing runs the
    changefeed. Raises: ConfigError, also when Polars is not installed; what `Audit` raises.
    """
    with needing("polars", otherwise="an audit needs Polars: pip install 'cdc-core[audit]'"):
        from cdc_core.auditing.audit import Audit
    known = None if store is None else store.changefeeds.find(feed.name)
    if store is not None and known is not None:
        feed = replace(feed, feed_id=known.feed_id)
        if wait_s is None and _rests(store, feed.name):
            wait_s = 0.0
    return Audit(feed, directory, at=at, wait_s=_WAIT_S if wait_s is None else wait_s, most_shown=most_shown)


def _rests(store: ProgressStore, name: str) -> bool:
    job = store.jobs.find(name)
    if job is not None:
        return job.state in FINISHED | RESTING
    return not is_alive(store.statuses.load(name), now=datetime.now(UTC))
