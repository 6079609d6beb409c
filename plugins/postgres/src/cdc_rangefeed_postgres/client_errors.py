"""What an error of psycopg, libpq or ADBC means for the changefeed. Messages leave this module masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from adbc_driver_manager import Error as AdbcError

from cdc_core import (
    CdcError,
    RetryableRangefeedError,
    TerminalRangefeedError,
)

__all__ = ["ClientError", "sqlstate", "text_of", "translated"]

ClientError = (psycopg.Error, AdbcError)

_PRIVILEGE = "42501"
_LOGIN = ("28", "3D000")
_TERMINAL = ("0A000", "22P06", "25006")


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of a client error, an empty text when it never reached a server."""
    return getattr(error, "sqlstate", None) or ""


def text_of(error: BaseException) -> str:
    """Return the first line of what the server or the client library said, without prefixes."""
    text = str(error).strip()
    for marker in ("ERROR:  ", "FATAL:  ", "PANIC:  "):
        _, found, rest = text.partition(marker)
        if found:
            text = rest
    return text.partition("\n")[0].removesuffix(".").strip() or type(error).__name__


@contextmanager
def translated(doing: str, mask: Callable[[str], str]) -> Iterator[None]:
    """Turn client errors of the block into errors of our tree; *doing* says what the block is at, for people.

    A lost connection, a server that is full or shutting down, a busy object, and whatever is unknown: retryable.
    A missing privilege or login: terminal, with what to do.
    """
    try:
        yield
    except ClientError as error:
        raise _translate(error, doing, mask) from None


def _translate(error: BaseException, doing: str, mask: Callable[[str], str]) -> CdcError:
    state = sqlstate(error)
    text = mask(f"PostgreSQL, {doing}: {text_of(error)}")
    if state == _PRIVILEGE:
        return TerminalRangefeedError(f"{text}: grant the privilege (`cdc check` says which) and run again")
    if state.startswith(_LOGIN):
        return TerminalRangefeedError(f"{text}: mend the source URI or the server's login settings and run again")
    if state.startswith(_TERMINAL):
        return TerminalRangefeedError(text)
    return RetryableRangefeedError(text)
