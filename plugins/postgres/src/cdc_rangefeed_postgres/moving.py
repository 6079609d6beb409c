"""Another position in the log for a changefeed that is stopped.

A position means the transactions whose commit begins there or later. The slot has all of those after the position that
was released last, so a changefeed can go back as far as that: mostly to where it was before it was moved forward.

What the token says about the shape of tables stays as it is. So the next run finds what was altered in the part that
is left out, and the policy for schema changes is carried out as if the run had been late.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import psycopg

from cdc_core import ConfigError, HistoryLostError, Move, Timestamp, Token
from cdc_rangefeed_postgres.connection import Connection, any_bytes
from cdc_rangefeed_postgres.datetimes import TIMESTAMP_EPOCH_US
from cdc_rangefeed_postgres.lsn import commit_of, flushed_and_clock, is_lsn, lsn_text, newest, parse_lsn
from cdc_rangefeed_postgres.names import copy_name
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.token import PostgresToken

_INTERVAL_BYTES = 64 << 20


def moved(connection: Connection, slot: Slot, saved: PostgresToken, to: str | Token) -> Move:
    """Return *saved* moved to *to*, see `cdc_core.Move`. Raises: ConfigError."""
    if saved.scan is not None:
        raise ConfigError("its tables are being scanned; wait for the scan to end")
    state = slot.state(connection)
    begin = 0 if state is None else state.confirmed
    try:
        slot.require(connection, needed=max(begin, saved.lsn))
    except HistoryLostError as error:
        raise ConfigError(str(error)) from error
    flushed, clock = flushed_and_clock(connection)
    lsn = _position(connection, slot, saved, to, begin=begin, flushed=flushed, clock=clock)
    if lsn > (end := newest(connection)):
        raise ConfigError(f"position {lsn_text(lsn)} is after the end of the log, {lsn_text(end)}")
    if lsn < begin:
        raise ConfigError(
            f"position {lsn_text(lsn)} is before {lsn_text(begin)}, where the log retained by replication slot"
            f" {slot.shown} begins"
        )
    if lsn < saved.altered_at:
        raise ConfigError(
            f"position {lsn_text(lsn)} is before {lsn_text(saved.altered_at)}, where tables were last scanned or"
            " altered, so older rows would have an old shape"
        )
    left = saved.left or saved.lsn
    if left < saved.again and left < lsn:
        raise ConfigError(
            f"position {lsn_text(lsn)} is after {lsn_text(left)}, and changes up to {lsn_text(saved.again)} are being"
            " delivered again, so the sink would keep old versions of rows; wait until the changefeed has reached that"
            " position, or start over with `cdc rescan FILE NAME --all --new-slot`"
        )
    forward, back = lsn > saved.lsn, lsn < saved.lsn
    token = saved
    if forward or back:
        token = placed(saved, lsn)
    if back:
        token = replace(token, settled=max(saved.settled, newest(connection)))
    return Move(token=token.to_json(), before=lsn_text(saved.lsn), after=lsn_text(lsn), forward=forward, back=back)


def begun(saved: PostgresToken) -> PostgresToken:
    """Return the token from which the run after a move begins. What it reads again is not left out anymore."""
    tables = {
        name: replace(state, left_out=0) if state.left_out >= saved.lsn else state
        for name, state in saved.tables.items()
    }
    return replace(saved, left=0, tables=tables)


def placed(saved: PostgresToken, lsn: int) -> PostgresToken:
    """Return *saved* at *lsn*. Several moves without a run between them are as the last one alone."""
    left = saved.left or saved.lsn
    delivered = max(left, saved.again)  # no change from there on was ever delivered
    tables = {}
    for name, state in saved.tables.items():
        before = 0 if state.left_out >= delivered else state.left_out
        tables[name] = replace(state, left_out=before or (delivered if lsn > delivered else 0))
    return replace(
        saved,
        lsn=lsn,
        clock=None,
        since=None if lsn == saved.altered_at else saved.altered_at,
        again=delivered if lsn < delivered else 0,
        left=0 if lsn == left else left,
        tables=tables,
    )


def _position(
    connection: Connection,
    slot: Slot,
    saved: PostgresToken,
    to: str | Token,
    *,
    begin: int,
    flushed: int,
    clock: Timestamp,
) -> int:
    text = to.get("lsn") if isinstance(to, dict) else to
    if text == "now":
        return flushed
    if isinstance(text, str) and is_lsn(text):
        return parse_lsn(text)
    if not isinstance(text, str) or isinstance(to, dict) or not Timestamp.is_text(text):
        raise ConfigError(
            f"'{to}' is neither 'now', nor a time such as 2026-01-31T12:00:00Z, nor an LSN such as 16/B374D848, nor a"
            " token"
        )
    at = Timestamp.parse(text)
    if at > clock:
        raise ConfigError(f"{at} is later than the source's clock, {clock}")
    return _after(connection, slot, saved, at, begin=begin, flushed=flushed)


def _after(connection: Connection, slot: Slot, saved: PostgresToken, at: Timestamp, *, begin: int, flushed: int) -> int:
    """Return the position of the first transaction that was committed later than *at*.

    Raises: ConfigError when it is not known that the slot has everything that is later.
    """
    known = begin <= saved.lsn and saved.clock is not None and saved.clock <= at
    for lsn, time in _commits(connection, slot, at, begin=begin, end=flushed):
        if time <= at:
            known = True
        elif known:
            return lsn
        else:
            raise ConfigError(
                f"{at} is earlier than {time}, the first transaction of replication slot {slot.shown}, so changes "
                f"before it may be missing; move to {lsn_text(begin)} for all its changes"
            )
    if not known:
        raise ConfigError(
            f"replication slot {slot.shown} has no transaction, so the time of its oldest change is unknown; move to"
            f" {lsn_text(begin)} for all its changes"
        )
    return flushed


def _commits(
    connection: Connection, slot: Slot, at: Timestamp, *, begin: int, end: int
) -> Iterator[tuple[int, Timestamp]]:
    """Yield position and time of commits between *begin* and *end*: the first one, and those later than *at*.

    Perhaps not all of those. A temporary copy of the slot is read in intervals, so that the server keeps little of it.
    """
    copy = copy_name(slot.name)
    later = max(0, at.wall // 1000 - TIMESTAMP_EPOCH_US).to_bytes(8)
    connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s, true)", [slot.name, copy])
    try:
        while begin < end:
            begin = min(begin + _INTERVAL_BYTES, end)
            query = f"""
                SELECT data FROM {slot.consume(copy, begin, binary=False)} WITH ORDINALITY AS m(lsn, xid, data, ord)
                WHERE get_byte(data, 0) = 66 AND (ord = 1 OR substring(data FROM 10 FOR 8) > %s) ORDER BY ord LIMIT 2"""
            with any_bytes(connection):
                found = connection.execute(query.encode(), [later]).fetchall()
            for (data,) in found:
                yield commit_of(data)
    finally:
        with suppress(psycopg.Error):  # it ends with the connection, and with an error on it
            connection.execute("SELECT pg_drop_replication_slot(%s)", [copy])
