"""Every error that the framework raises, grouped by what its catcher does about it.

    CdcError
    ├── ConfigError (ValueError)        stop now, the user must change something     exit status 2
    │   ├── OptionError
    │   ├── UnknownPluginError (LookupError)
    │   ├── PluginConflictError
    │   └── PluginLoadError
    ├── RowError                        rows are refused for what they hold: find them, deliver all others
    │   ├── EncodeError                 by the encoder; no row of this call was taken
    │   └── RefusedRowsError            by the destination; no row since the last flush counts
    ├── RetryableError                  run the step again after a wait
    │   ├── RetryableRangefeedError
    │   │   └── RestartError            nothing failed: another attempt is needed
    │   │       └── UnplannedSchemaError    for a version of a table that the query is not planned for
    │   └── RetryableSinkError
    ├── TerminalError                   stop, a retry cannot help                    exit status 1
    │   ├── BadRowError                 a row was refused, and the user wants no dead letters
    │   ├── HistoryLostError            the source no longer has changes that were not read
    │   ├── TerminalRangefeedError
    │   ├── TerminalSinkError
    │   │   └── DestinationLostError    it no longer has what was delivered
    │   └── FencedError                 a newer attempt of the same changefeed took over
    └── ContractError                   a plugin broke its contract; names plugin and clause

In steady state an error that is none of these is retried with back-off, `max_attempts` times in the same step and for
`give_up_after` unless it is an outage (see `RetryableError`); while a changefeed is being set up it is fatal.
A sink that knows which rows are refused raises nothing: it lists them in `Flushed.refused`.

Every error can cross a process border: `to_wire` turns it into one line of text that survives in an exception message,
`from_wire` finds that line again. Messages are for users: one sentence that names the thing, the place and the remedy.
"""

from __future__ import annotations

import base64
import errno
import json
import re
from typing import Any

from cdc_core.remedies import RUN_ANOTHER

START_OVER = f"To start over, {RUN_ANOTHER}, with an initial scan, and remove this one with `cdc drop FILE NAME`"
"""The remedy in messages about rows that this changefeed can no longer deliver. A sentence without its full stop."""


class CdcError(Exception):
    """The base class of all errors. Never raised directly.

    `repairable` says that neither the user's configuration nor the source's data is wrong: someone must repair the
    cause elsewhere, such as a password, a permission, a certificate, a topic or a bucket. A changefeed that has
    delivered something before retries, as after any failure that is not an outage; any other changefeed ends at once.
    """

    exit_status = 1

    def __init__(self, *message: object, repairable: bool = False) -> None:
        super().__init__(*message)
        self.repairable = repairable


class ConfigError(CdcError, ValueError):
    """The user's configuration cannot work. Raised before anything is created at the source or the sink."""

    exit_status = 2


class OptionError(ConfigError):
    """An option or URI parameter is unknown, malformed, or incompatible with another one."""


class UnknownPluginError(ConfigError, LookupError):
    """No installed plugin has the name or URI scheme asked for."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class PluginConflictError(ConfigError):
    """Two installed distributions claim one name."""


class PluginLoadError(ConfigError):
    """The requested plugin is installed but cannot be used."""


class RetryableError(CdcError):
    """The same work may succeed later, so the engine repeats the step from the last saved progress.

    `retry_after_s` is the minimum wait that the other side requested, or None for the engine's own backoff. `outage`
    says that the other side is unreachable or busy: the engine retries for as long as that lasts. Any other failure may
    be caused by the contents of the step: the engine gives up when the same step has failed `max_attempts` times and
    `give_up_after` has passed.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, outage: bool = True, repairable: bool = False
    ) -> None:
        super().__init__(message, repairable=repairable)
        self.retry_after_s = retry_after_s
        self.outage = outage


class RetryableRangefeedError(RetryableError):
    """The source is unreachable or busy."""


class RestartError(RetryableRangefeedError):
    """Nothing failed, but the rangefeed needs another attempt, for example to read other tables. The message says why.

    The new attempt begins at once if this one has saved a step, and otherwise after a wait, like any retry.
    """


class UnplannedSchemaError(RestartError):
    """A row has a version of its table that the query is not planned for: `schema`, as JSON values."""

    def __init__(
        self,
        message: str,
        *,
        schema: dict[str, Any] | None = None,
        retry_after_s: float | None = None,
        outage: bool = True,
        repairable: bool = False,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, outage=outage, repairable=repairable)
        self.schema = schema or {}


class RetryableSinkError(RetryableError):
    """The destination is unreachable or busy, or refuses temporarily."""


class RowError(CdcError):
    """Rows are refused because of their contents, and a retry cannot help. Never raised itself.

    The engine passes the rows again in smaller parts until the bad ones are alone; these end the changefeed or become
    dead letters, as on_error says, and all others are delivered. `row` is the index of a row that is probably bad, or
    None. This row is tried alone first, which saves most of the search; a wrong index does no harm.
    """

    def __init__(self, message: str, *, row: int | None = None, repairable: bool = False) -> None:
        super().__init__(message, repairable=repairable)
        self.row = row


class EncodeError(RowError):
    """A value has no representation in the chosen format. Names table, column and key.

    Leaves `Sink.emit` before the sink has taken any row of that call. `row` is the index in the batch that was to be
    encoded.
    """


class RefusedRowsError(RowError):
    """The destination refuses rows, and the sink cannot tell which: otherwise it lists them in `Flushed.refused`.

    Raised by `Sink.emit` or `Sink.flush`. None of the rows since the last flush counts as delivered, although some may
    have been; the sink has forgotten all of them and is ready for more. `row` is counted like `RefusedRow.index`. Do
    not raise it for a temporary failure, which is a RetryableSinkError.
    """


class TerminalError(CdcError):
    """No retry can help: the changefeed stops with this error."""


class HistoryLostError(TerminalError):
    """The source has discarded changes that were not delivered yet."""


class TerminalRangefeedError(TerminalError):
    """The source can no longer be followed (a table was dropped or truncated, a privilege was revoked)."""


class TerminalSinkError(TerminalError):
    """The destination refuses permanently."""


class DestinationLostError(TerminalSinkError):
    """The destination lost what was delivered. The next run accepts what is there, because this error told the user."""


class BadRowError(TerminalError):
    """The encoder or the destination refuses a row, and the user wants no dead letters. Names table, key and reason."""


class FencedError(TerminalError):
    """A newer attempt of the same changefeed owns its progress; this one must stop and save nothing."""


class ContractError(CdcError):
    """A plugin broke its contract. The message names the plugin and the broken clause."""


_WIRE = re.compile(r"<<cdc-error ([A-Za-z0-9+/=]+)>>")
_BY_NAME: dict[str, type[CdcError]] = {
    cls.__name__: cls for cls in list(globals().values()) if isinstance(cls, type) and issubclass(cls, CdcError)
}


def is_outage(error: BaseException) -> bool:
    """Return whether *error* says that something is out of reach, busy or full, so that nothing but waiting helps."""
    if isinstance(error, RetryableError):
        return error.outage
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return is_full or isinstance(error, ConnectionError | TimeoutError)


def to_wire(error: CdcError) -> str:
    """Return one line that holds *error* and that `from_wire` finds inside any longer text.

    The line is base64, so that quoting by Spark, log4j or a traceback does not change it. The message must be masked
    already: this is how it leaves the process. An error of a plugin's own class arrives as the class of this tree that
    it is derived from.
    """
    kind = next(cls for cls in type(error).__mro__ if _BY_NAME.get(cls.__name__) is cls)
    payload: dict[str, Any] = {"type": kind.__name__, "message": str(error)}
    if error.repairable:
        payload["repairable"] = True
    if isinstance(error, RetryableError):
        payload |= {"retry_after_s": error.retry_after_s, "outage": error.outage}
    if isinstance(error, UnplannedSchemaError):
        payload["schema"] = error.schema
    return f"<<cdc-error {base64.b64encode(json.dumps(payload).encode()).decode()}>>"


def from_wire(text: str) -> CdcError | None:
    """Return the first error that `to_wire` put into *text*, or None when there is none."""
    found = _WIRE.search(text)
    if found is None:
        return None
    payload = json.loads(base64.b64decode(found.group(1)))
    cls = _BY_NAME[payload.pop("type")]
    return cls(payload.pop("message"), **payload)
