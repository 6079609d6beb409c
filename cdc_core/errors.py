"""Every error that the framework raises, grouped by what its catcher does about it.

    CdcError
    ├── ConfigError (ValueError)        stop now, the user must change something     exit status 2
    │   ├── OptionError
    │   ├── UnknownPluginError (LookupError)
    │   ├── PluginConflictError
    │   └── PluginLoadError
    ├── RetryableError                  run the step again after a wait
    │   ├── RetryableRangefeedError
    │   └── RetryableSinkError
    ├── RefusedRowsError                some of the rows since the last flush are bad: find them
    ├── PartialWriteError               these of the rows since the last flush are bad, the others are delivered
    ├── TerminalError                   stop, a retry cannot help                    exit status 1
    │   ├── BadRowError                 a row that encoder or sink does not take
    │   ├── HistoryLostError            the source no longer has what was not yet read
    │   ├── TerminalRangefeedError
    │   ├── TerminalSinkError
    │   ├── EncodeError
    │   └── FencedError                 another run of the same changefeed took over
    └── ContractError                   a plugin broke its contract; names plugin and clause

In steady state an error that is none of these is retried with back-off; while a changefeed is being set up it is fatal.

Every error can cross a process border: `to_wire` turns it into one line of text that survives in an exception message,
`from_wire` finds that line again. Messages are for users: one sentence that names the thing, the place and the remedy.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

__all__ = [
    "BadRowError",
    "CdcError",
    "ConfigError",
    "ContractError",
    "EncodeError",
    "FencedError",
    "HistoryLostError",
    "OptionError",
    "PartialWriteError",
    "PluginConflictError",
    "PluginLoadError",
    "RefusedRowsError",
    "RetryableError",
    "RetryableRangefeedError",
    "RetryableSinkError",
    "TerminalError",
    "TerminalRangefeedError",
    "TerminalSinkError",
    "UnknownPluginError",
    "from_wire",
    "to_wire",
]


class CdcError(Exception):
    """Root of the tree. Never raised itself."""

    exit_status = 1


class ConfigError(CdcError, ValueError):
    """What the user wrote cannot work. Raised before anything is created on the source or at the sink."""

    exit_status = 2


class OptionError(ConfigError):
    """An option or URI parameter is unknown, malformed, or impossible together with another one."""


class UnknownPluginError(ConfigError, LookupError):
    """No installed plugin has the name or URI scheme asked for."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class PluginConflictError(ConfigError):
    """Two installed distributions claim one name."""


class PluginLoadError(ConfigError):
    """The plugin asked for is installed but cannot be used."""


class RetryableError(CdcError):
    """The same work may succeed later. The engine repeats the step from the last saved progress.

    `retry_after_s` is the least wait that the other side asked for, or None for the engine's own back-off.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RetryableRangefeedError(RetryableError):
    """The source is out of reach or busy."""


class RetryableSinkError(RetryableError):
    """The destination is out of reach, busy, or refused for the moment."""


class RefusedRowsError(CdcError):
    """The destination refuses rows for what they hold, and the sink cannot tell which.

    Raised by `emit` or `flush`. Of the rows since the last flush none counts as delivered, though some may be; the sink
    has forgotten them all and is ready for more. The engine gives them again in smaller parts, flushing each, until the
    bad rows are alone. Never for trouble that may heal: that is a RetryableSinkError.

    `row` is a row that is probably one of them, counted as in a PartialWriteError; None when there is no guess. It is
    given alone first, which spares most of the search, and does no harm when it is wrong.
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class PartialWriteError(CdcError):
    """The destination refuses the listed rows for what they hold, and takes all others.

    Raised by `emit` or `flush`; the sink goes on being used. `failures` holds (index, reason) pairs: rows are counted
    from 0 at `begin`, after each `flush` and after a RefusedRowsError, in the order in which they were emitted. All
    other rows of the calls so far are as if nothing had been raised: delivered when `flush` raises it, on their way
    when `emit` does. A row is listed once. After a `flush` that raised it the engine flushes once more, to be told what
    became durable.
    """

    def __init__(self, message: str, *, failures: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


class TerminalError(CdcError):
    """No retry can help: the changefeed stops and says so."""


class HistoryLostError(TerminalError):
    """The source has thrown away changes that were not delivered yet."""


class TerminalRangefeedError(TerminalError):
    """The source can no longer be followed (a table was dropped or truncated, a privilege was revoked)."""


class TerminalSinkError(TerminalError):
    """The destination refuses for good."""


class BadRowError(TerminalError):
    """The encoder or the sink does not take a row, and no dead letters are wanted. Names table, key and reason."""


class EncodeError(TerminalError):
    """A value has no representation in the chosen format. Names table, column and key.

    `row` is the index, in the batch that was to be encoded, of a row with such a value; None when it is not known.
    With it the bad row is found at once, without it by halves.
    """

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class FencedError(TerminalError):
    """A newer run of the same changefeed owns its progress; this one must stop and save nothing."""


class ContractError(CdcError):
    """A plugin broke its contract. The message names the plugin and the clause."""


_WIRE = re.compile(r"<<cdc-error ([A-Za-z0-9+/=]+)>>")
_BY_NAME: dict[str, type[CdcError]] = {
    cls.__name__: cls for cls in list(globals().values()) if isinstance(cls, type) and issubclass(cls, CdcError)
}


def to_wire(error: CdcError) -> str:
    """Return one line that holds *error* and that `from_wire` finds inside any longer text.

    The line is base64, so that quoting by Spark, log4j or a traceback does not change it. The message must be masked
    already: this is how it leaves the process. An error of a plugin's own class arrives as the class of this tree that
    it is derived from.
    """
    kind = next(cls for cls in type(error).__mro__ if _BY_NAME.get(cls.__name__) is cls)
    payload: dict[str, Any] = {"type": kind.__name__, "message": str(error)}
    if isinstance(error, RetryableError):
        payload["retry_after_s"] = error.retry_after_s
    if isinstance(error, PartialWriteError):
        payload["failures"] = list(error.failures)
    return f"<<cdc-error {base64.b64encode(json.dumps(payload).encode()).decode()}>>"


def from_wire(text: str) -> CdcError | None:
    """Return the first error that `to_wire` put into *text*, or None when there is none."""
    found = _WIRE.search(text)
    if found is None:
        return None
    payload = json.loads(base64.b64decode(found.group(1)))
    cls = _BY_NAME[payload["type"]]
    if issubclass(cls, RetryableError):
        return cls(payload["message"], retry_after_s=payload["retry_after_s"])
    if issubclass(cls, PartialWriteError):
        return cls(payload["message"], failures=[(index, reason) for index, reason in payload["failures"]])
    return cls(payload["message"])
