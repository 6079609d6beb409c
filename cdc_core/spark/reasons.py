"""How a run tells people of an error."""

from __future__ import annotations

from pyspark.errors import PySparkException

from cdc_core.config.resolved import Job
from cdc_core.errors import CdcError, RetryableRangefeedError, RetryableSinkError

__all__ = ["described", "owner_of"]


def described(error: Exception) -> str:
    """Return *error* in one line. Not masked."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else "no message"
    return first if isinstance(error, CdcError | PySparkException) else f"{type(error).__name__}: {first}"


def owner_of(error: Exception, job: Job) -> str | None:
    """Return whose trouble *error* is, as messages name it, as far as it says."""
    if isinstance(error, RetryableRangefeedError):
        return job.rangefeed.owner
    return job.sink.owner if isinstance(error, RetryableSinkError) else None
