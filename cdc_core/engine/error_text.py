"""How an error is described to people."""

from __future__ import annotations

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import (
    CdcError,
    RetryableRangefeedError,
    RetryableSinkError,
    TerminalRangefeedError,
    TerminalSinkError,
)
from cdc_core.open_files import with_open_files_limit

_OF_SOURCE = (RetryableRangefeedError, TerminalRangefeedError)
_OF_SINK = (RetryableSinkError, TerminalSinkError)


def one_line(error: BaseException) -> str:
    """Return *error* in one line. Not masked."""
    text = str(error).strip()
    first = with_open_files_limit(text.splitlines()[0], error) if text else "no message"
    return first if isinstance(error, CdcError) else f"{type(error).__name__}: {first}"


def cause_of(error: Exception) -> str:
    """Return where *error* comes from, in one of the words that `RETRIES` lists."""
    if isinstance(error, _OF_SOURCE):
        return "source"
    if isinstance(error, _OF_SINK):
        return "sink"
    return "spark" if isinstance(error, QueryHostError) else "other"


def owner_of(error: Exception, feed: ResolvedChangefeed) -> str | None:
    """Return the component that *error* comes from, as messages name it, or None when the error does not say."""
    if isinstance(error, _OF_SOURCE):
        return feed.rangefeed.owner
    return feed.sink.owner if isinstance(error, _OF_SINK) else None
