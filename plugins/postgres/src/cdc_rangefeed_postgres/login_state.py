"""The SQLSTATE with which a server refuses a login. Clients only give the text, in the language of the server."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc_rangefeed_postgres.client_errors import attempts_of

_FAILED = " failed: "
_OF_SERVER = re.compile(rf"{_FAILED}\S+:  ")
"""What libpq puts before a text of the server, with a severity in the server's language."""
_STATE = re.compile(rb'\tErrorResponse\t.*? C "(\w{5})"')
_LISTS = ("host", "hostaddr", "port")
_LIMIT_S = 10.0
_TRACES_LOGINS = 180000
_WAITS_FOR = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def with_state(error: psycopg.Error, conninfo: str) -> psycopg.Error:
    """Return *error*, of a connection to *conninfo*, with its SQLSTATE if all hosts refuse the login again.

    When they refuse it for several reasons, another one than the login counts. There is no SQLSTATE for an error of the
    client, and with libpq before 18.
    """
    if error.sqlstate is None and pq.version() >= _TRACES_LOGINS and all(map(_OF_SERVER.search, attempts_of(error))):
        with suppress(LookupError):
            states = [state for each in _hosts(conninfo_to_dict(conninfo)) for state in _states(each, str(error))]
            error.sqlstate = min(states, key=lambda state: state[:2] == "28")
    return error


def _hosts(parameters: dict[str, Any]) -> Iterator[str]:
    """Yield the conninfo of each host that *parameters* list: psycopg tries them one by one."""
    lists = {name: parameters[name].split(",") for name in _LISTS if parameters.get(name)}
    for index in range(max(map(len, lists.values()), default=1)):
        yield make_conninfo(**{**parameters, **{name: each[index % len(each)] for name, each in lists.items()}})


@lru_cache(maxsize=64)
def _states(conninfo: str, text: str) -> list[str]:
    """Return the SQLSTATEs of other refusals with the same *text*, with and without TLS: libpq traces what arrives.

    Raises: LookupError, which is not cached, if that is not how the connection failed.
    """
    with os.fdopen(os.memfd_create("login"), "rb") as trace:
        connection = pq.PGconn.connect_start(conninfo.encode())
        try:
            connection.trace(trace.fileno())
            _wait_for_end(connection)
            said = connection.get_error_message().splitlines()
        finally:
            connection.untrace()  # writes the rest, while the file is open
            connection.finish()
        trace.seek(0)
        found = _STATE.findall(trace.read())
    failures = [line.partition(_FAILED)[2] for line in said if _FAILED in line]
    if not found or len(failures) != len(found) or not all(failure in text for failure in failures):
        raise LookupError
    return [state.decode() for state in found]


def _wait_for_end(connection: pq.abc.PGconn) -> None:
    """Wait until *connection* is made or refused, or for `_LIMIT_S`."""
    deadline = time.monotonic() + _LIMIT_S
    waits_for: int | None = select.POLLOUT
    while (
        waits_for is not None and (left := deadline - time.monotonic()) > 0 and connection.status != pq.ConnStatus.BAD
    ):
        poll = select.poll()
        poll.register(connection.socket, waits_for)
        poll.poll(left * 1000)
        waits_for = _WAITS_FOR.get(pq.PollingStatus(connection.connect_poll()))
