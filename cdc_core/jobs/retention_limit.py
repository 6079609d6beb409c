"""What jobs hold back at their sources: the history after their high-water marks, which a source must not collect."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.interpolation import interpolate
from cdc_core.config.resolve import canonical_names
from cdc_core.errors import ConfigError
from cdc_core.options import format_duration, option_names, parse_options
from cdc_core.store.job_values import FOLLOWING, RESTING, JobRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.reports import protected_since
from cdc_core.telemetry.status import behind_text

POLL_INTERVAL_S = 60.0
"""How often the store is read."""
WARN_AFTER_S = 86_400.0
WARN_EVERY_S = 3_600.0
_OPTION = "gc_protect_expires_after"
_RESTS = RESTING | {"waiting"}
"""The states in which nothing is delivered, and to which the default applies."""
_REMEDY = "the source cannot remove it; see `cdc show`, and resume or cancel the job"

log = logging.getLogger(__name__)


class RetentionLimit:
    """What a node does about jobs that hold back much. Every node does it, whoever runs the job."""

    def __init__(self, store: ProgressStore) -> None:
        self._store = store
        self._poll_at = 0.0
        self._warned: dict[str, float] = {}

    def enforce(self, now: float) -> list[str]:
        """Cancel the jobs that have held back history for longer than they may, and return their names.

        Logs a warning about each job that has done so for 24 hours, or for half as long as it may, once an hour. Called
        at each poll with the database's clock; reads the store at most once a minute. Raises: RetryableError as the
        store does.
        """
        if now < self._poll_at:
            return []
        self._poll_at = now + POLL_INTERVAL_S
        self._warned = {name: at for name, at in self._warned.items() if now - at < WARN_EVERY_S}
        known = {changefeed.name: changefeed for changefeed in self._store.changefeeds.all()}
        canceled = []
        for job in self._store.claims.overview().jobs:
            since = protected_since(job, known[job.name]) if job.name in known else None
            if since is None or "cancel-requested" not in FOLLOWING[job.state]:
                continue
            age_s, max_s = now - since, float("inf")
            try:
                given, max_s = expires_after(job, known[job.name].definition)
                if not given and age_s > max_s:
                    age_s = min(age_s, now - self._rests_since(job))
            except ConfigError as error:
                self._warn(job.name, now, f"cannot be canceled by {_OPTION}", str(error))
            if age_s > max_s:
                canceled += self._cancel(job, age_s, max_s)
            elif age_s >= min(WARN_AFTER_S, max_s / 2):
                end = "" if max_s == float("inf") else f"; otherwise it is canceled in {behind_text(max_s - age_s)}"
                what = f"has retained history at its source for {behind_text(age_s)}"
                self._warn(job.name, now, what, _REMEDY + end)
        return canceled

    def _cancel(self, job: JobRecord, age_s: float, max_s: float) -> list[str]:
        """Cancel the job, and return its name if this node did."""
        name = job.name
        reason = (
            f"it has retained history at its source for {behind_text(age_s)}, longer than"
            f" {_OPTION} = {format_duration(max_s)}"
        )
        try:
            Changefeeds(self._store).cancel(name, reason, only={job.state})
        except ConfigError:  # another node was faster, someone has resumed it, or it has ended
            return []
        self._store.events.note("history_expired", name, message=reason)
        log.warning("job '%s' is canceled: %s", name, reason, extra={"changefeed": name})
        return [name]

    def _rests_since(self, job: JobRecord) -> float:
        """Return when the state of the job changed last, as far as that is known."""
        return max((event.at for event in self._store.jobs.events(job.name)), default=job.created)

    def _warn(self, name: str, now: float, what: str, remedy: str) -> None:
        if name not in self._warned:
            self._warned[name] = now
            log.warning("job '%s' %s: %s", name, what, remedy, extra={"changefeed": name})


def expires_after(job: JobRecord, definition: Mapping[str, Any]) -> tuple[bool, float]:
    """Return whether the job's definition, as stored, limits for how long it may hold back history, and the limit in
    seconds. The default is about jobs that rest.

    Raises: ConfigError when the option cannot be read, such as for a variable that this process lacks.
    """
    owner = f"changefeed '{job.name}'"
    written = definition.get("written", {}).get("options", {})
    given = canonical_names(written, option_names(ChangefeedOptions), owner=owner)
    values = {
        name: interpolate(value, place=f"{owner}, option '{name}'", environ=os.environ)
        for name, value in given.items()
        if name == _OPTION
    }
    limit = parse_options(ChangefeedOptions, values, owner=owner).gc_protect_expires_after
    return bool(values), (limit if limit and (values or job.state in _RESTS) else float("inf"))
