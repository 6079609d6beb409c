"""Errors of psycopg, libpq and ADBC, translated into errors of cdc_core. Secrets are masked here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from adbc_driver_manager import AdbcStatusCode
from adbc_driver_manager import Error as AdbcError

from cdc_core import START_OVER, CdcError, RetryableRangefeedError, TerminalRangefeedError

ClientError = (psycopg.Error, AdbcError)

_ATTEMPT = re.compile(r"- host: .*?, hostaddr: .*?: (?:connection failed: )?(.*)")
"""How psycopg reports one of several hosts."""
_PRIVILEGE = "42501"
_LIMIT = "54000"
_LOGIN = ("28", "3D000")
_POOLER = "unsupported startup parameter"
"""What PgBouncer says of connections for replication, and of settings of the session."""
_REFUSED_LOGIN = re.compile(
    r"authentication failed|no pg_hba\.conf entry|pg_hba\.conf rejects|is not permitted to log in|no password supplied"
    r"|FATAL:  (?:role|database) \".*\" does not exist|FATAL:  permission denied|valid client certificate"
    rf"|{_POOLER}"
)
"""Clients give no SQLSTATE when they cannot connect, only the server's text. `login_state` finds it in any language."""
_REFUSED_TLS = re.compile(
    r"certificate verify failed|SSL error: .*alert (?!internal error)|does not match host name|does not support SSL"
    r"|certificate file|private key file"
)
_LIMITS = {
    "temp_file_limit": "Raise temp_file_limit for the role of the changefeed",
    "too many connections for role": "Raise its CONNECTION LIMIT",
    "too many connections for database": "Raise its CONNECTION LIMIT",
    "too many clients": "Raise max_connections",
    "remaining connection slots": "Raise max_connections",
}
"""What to do about a limit that the server's text names."""
_NOT_IN_UTF8 = "22P05"
_READ_ONLY = "25006"
_TERMINAL = ("0A000", "22P06", _READ_ONLY)
_OUTAGE = ("08", "25", "40", "53", "55", "57", "58")
"""SQLSTATE classes: connections, states of transactions, conflicts, resources, locks, interventions, the system."""
_ADBC_OUTAGE = (AdbcStatusCode.IO, AdbcStatusCode.CANCELLED, AdbcStatusCode.TIMEOUT)


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of a client error; an empty text when the error does not come from a server."""
    return getattr(error, "sqlstate", None) or ""


def text_of(error: BaseException) -> str:
    """Return the first line of the message of the server or client library, without prefixes.

    When several hosts failed, return what each of them said.
    """
    text = str(error).strip()
    return "; ".join(map(_first_line, dict.fromkeys(_attempts(text)))) or _first_line(text) or type(error).__name__


def _attempts(text: str) -> list[str]:
    """Return what each of several hosts said; nothing for a single one."""
    return [found[1] for found in map(_ATTEMPT.fullmatch, text.splitlines()) if found]


def _first_line(text: str) -> str:
    for marker in ("ERROR:  ", "FATAL:  ", "PANIC:  "):
        _, found, rest = text.partition(marker)
        if found:
            text = rest
    return text.partition("\n")[0].removesuffix(".").strip()


@contextmanager
def translated(doing: str, mask: Callable[[str], str]) -> Iterator[None]:
    """Turn client errors inside the block into errors of cdc_core; *doing* names the block's work in the message.

    A lost connection, a server that is full or shutting down, and a busy object are outages. Every unknown error is
    retryable, but no outage. A missing privilege, a refused login or certificate and a server that is read-only are
    terminal, and someone can repair them there.
    """
    try:
        yield
    except ClientError as error:
        raise _translate(error, doing, mask) from None


def _translate(error: BaseException, doing: str, mask: Callable[[str], str]) -> CdcError:
    state = sqlstate(error)
    text = mask(f"PostgreSQL failed while {doing}: {text_of(error)}")
    if state == _PRIVILEGE:
        return TerminalRangefeedError(
            f"{text}. Run `cdc check FILE NAME` to see which privilege is missing, and grant it", repairable=True
        )
    text += next((f". {remedy}" for limit, remedy in _LIMITS.items() if limit in text), "")
    if state == _NOT_IN_UTF8:
        return TerminalRangefeedError(f"{text}. Change the value. {START_OVER}")
    if state == _LIMIT and "enlarge string buffer" in str(error):
        return TerminalRangefeedError(
            f"{text}. A row exceeds the 1 GB that PostgreSQL can send. Make the row smaller. {START_OVER}"
        )
    if is_refused(error):
        other = "the certificates" if _REFUSED_TLS.search(str(error)) else "the server's login settings"
        remedy = (
            "Connect to the server itself, not to a pooler" if _POOLER in text else f"Fix the source URI or {other}"
        )
        return TerminalRangefeedError(f"{text}. {remedy}", repairable=True)
    if state.startswith(_TERMINAL):
        return TerminalRangefeedError(text, repairable=state == _READ_ONLY)
    if state:
        return RetryableRangefeedError(text, outage=state.startswith(_OUTAGE))
    return RetryableRangefeedError(text, outage=getattr(error, "status_code", AdbcStatusCode.IO) in _ADBC_OUTAGE)


def is_refused(error: BaseException) -> bool:
    """Return whether every host refused the login or a certificate: one that is out of reach may accept them."""
    if state := sqlstate(error):
        return state.startswith(_LOGIN)
    return all(_REFUSED_LOGIN.search(each) or _REFUSED_TLS.search(each) for each in attempts_of(error))


def attempts_of(error: BaseException) -> list[str]:
    """Return what *error* says of each attempt to connect: for each host, with and without TLS."""
    lines = str(error).splitlines()
    return [line for line in lines if " failed: " in line or _ATTEMPT.fullmatch(line)] or [str(error)]
