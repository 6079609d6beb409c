"""The service: what people ask of changefeeds, at whatever door."""

from __future__ import annotations

from cdc_core.changefeeds.altering import Altering
from cdc_core.changefeeds.creating import Continuing
from cdc_core.changefeeds.diagnosing import Diagnosing
from cdc_core.changefeeds.dropping import Dropping
from cdc_core.changefeeds.lifecycle import Lifecycle
from cdc_core.changefeeds.moving import Moving
from cdc_core.changefeeds.previewing import Previewing
from cdc_core.changefeeds.reading import Reading
from cdc_core.changefeeds.replaying import Replaying
from cdc_core.changefeeds.rescanning import Rescanning
from cdc_core.changefeeds.scheduling import Scheduling
from cdc_core.changefeeds.tracing import Tracing
from cdc_core.config.alteration import Alteration
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.verbs import RefusedError, UnknownError

__all__ = ["Alteration", "Changefeeds", "JobRecord", "ProgressStore", "RefusedError", "UnknownError"]


class Changefeeds(
    Altering,
    Continuing,
    Diagnosing,
    Dropping,
    Lifecycle,
    Moving,
    Previewing,
    Reading,
    Replaying,
    Rescanning,
    Scheduling,
    Tracing,
):
    """The changefeeds of one store and every verb on them, for all interfaces. Each group of verbs has its module.

    A verb is one transaction: it has taken effect when the call returns, and has changed nothing if the call raises. A
    verb that has already been done changes nothing. If a verb that also changes a source or a sink (drop, replay) is
    interrupted, repeat it.

    Raises, everywhere: UnknownError for a name that the store does not know, RefusedError if the state of the job does
    not allow the verb (`store.verbs.RULES`), ConfigError for what the user must change, RetryableError if the store is
    unreachable.
    """
