"""The timeline of a primary: a promotion begins another one, and so does a recovery to an earlier time.

The log of the new timeline contains that of the old one up to some position, and soon passes every other position. So
its end alone does not show whether a changefeed has delivered what the server never had.
"""

from __future__ import annotations

import logging
import re
from contextlib import closing
from dataclasses import replace

import psycopg

from cdc_core import HistoryLostError, RetryableRangefeedError
from cdc_rangefeed_postgres.client_errors import sqlstate, text_of
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn
from cdc_rangefeed_postgres.token import PostgresToken

log = logging.getLogger(__name__)

_PRESENT = "SELECT pg_walfile_name(pg_current_wal_lsn())::text WHERE NOT pg_is_in_recovery()"
_UNTOLD = ("0A000", "42501", "42601", "58P01")
"""A service or a role without the command, or a server without the file."""
_REFUSED = re.compile("to start (?:walsender|WAL sender)")
"""A role that may not start one, which has no SQLSTATE in English."""


def timeline(connection: Connection) -> int:
    """Return the server's timeline; 0 for a standby, and for a service that does not tell it."""
    try:
        row = connection.execute(_PRESENT).fetchone()
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.InternalError):
        return 0
    return 0 if row is None else int(row[0][:8], 16)


def followed(server: Server, connection: Connection, saved: PostgresToken, *, remedy: str) -> PostgresToken:
    """Return *saved* with the server's timeline, whose log has everything that was delivered.

    The timeline of *saved* stays when the server does not tell its own. Raises: HistoryLostError, with *remedy*, when
    the server was promoted or restored without some of it.
    """
    present = timeline(connection)
    if saved.timeline and present and present != saved.timeline:
        try:
            # A timeline comes from lower ones only. A lower one is that of an earlier copy, or of pg_upgrade.
            left = _left_at(server, saved.timeline, present) if present > saved.timeline else None
        except psycopg.Error as error:
            if not _untold(error):
                raise
            log.warning("where the log left timeline %d is unknown: %s", saved.timeline, server.mask(text_of(error)))
            return replace(saved, timeline=present)
        if left is None or left < saved.lsn:
            where = "earlier" if left is None else f"at {lsn_text(left)}"
            raise HistoryLostError(
                f"the server's log left timeline {saved.timeline} {where}, but changes up to {lsn_text(saved.lsn)} were"
                " delivered: the server was restored from a backup, or upgraded, or is a standby that was promoted"
                f" before it had received them. {remedy}"
            )
    return replace(saved, timeline=present or saved.timeline)


def warn_of_step(server: Server, begun: PostgresToken, present: int) -> None:
    """Log a warning when some rows of a step up to *begun*, which was not saved, may not exist on timeline *present*.

    Whether they were delivered is not known: with `synchronized_standby_slots`, none were.
    """
    try:
        left = _left_at(server, begun.timeline, present) if begun.timeline < present else None
    except psycopg.Error as error:
        if not _untold(error):
            raise
        return  # `followed` has logged it
    if left is not None and left < begun.lsn:
        log.warning(
            "the server's log left timeline %d at %s, but a step up to %s had begun, and its rows may have been"
            " delivered; unless synchronized_standby_slots was set, compare the destination with `cdc audit`",
            begun.timeline,
            lsn_text(left),
            lsn_text(begun.lsn),
        )


def require_same(connection: Connection, start: PostgresToken) -> int:
    """Return the timeline of the server, unless that was promoted since the attempt began at *start*.

    Raises: RetryableRangefeedError; the next attempt finds out whether that server has everything.
    """
    present = timeline(connection)
    if start.timeline and present and present != start.timeline:
        raise RetryableRangefeedError(
            f"the server is on timeline {present}, and was on {start.timeline} when the attempt began; starting again"
        )
    return present


def _untold(error: psycopg.Error) -> bool:
    """Return whether *error* says that the server will not tell where its log left a timeline."""
    return sqlstate(error) in _UNTOLD or _REFUSED.search(str(error)) is not None


def _left_at(server: Server, before: int, present: int) -> int | None:
    """Return where the log of timeline *present* left timeline *before*; None if it never was on that one."""
    with closing(server.connect("timeline", replication=True)) as connection:
        result = connection.execute(f"TIMELINE_HISTORY {present}".encode()).pgresult
        content = None if result is None else result.get_value(0, 1)  # as the file has it, whatever its type
    lines = (line.split() for line in (content or b"").decode(errors="replace").splitlines())
    return next((parse_lsn(words[1]) for words in lines if words and words[0] == str(before)), None)
