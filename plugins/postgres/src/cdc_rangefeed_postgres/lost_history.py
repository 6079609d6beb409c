"""What a client error means when the slot or the publication is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core import HistoryLostError, TerminalRangefeedError
from cdc_rangefeed_postgres.client_errors import ClientError, sqlstate, text_of
from cdc_rangefeed_postgres.connection import Server
from cdc_rangefeed_postgres.lsn import lsn_text
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.timeline import timeline

_NOT_READY = ("55000", "42704", "58P01")
"""The slot cannot be used, there is no such object, or a file of the log is missing."""
_SEGMENT = re.compile(r"WAL segment \S*?([0-9A-F]{8})[0-9A-F]{16}\b")
"""The file's timeline. While a standby is promoted, it may look for one of the last timeline, and find it later."""


@contextmanager
def explained(server: Server, slot: Slot, *, needed: int) -> Iterator[None]:
    """Raise HistoryLostError or TerminalRangefeedError in place of client errors that come from lost history.

    *needed* is the LSN from which the block reads the log of *slot*.
    """
    try:
        yield
    except ClientError as error:
        if sqlstate(error) in _NOT_READY:
            present = explain(server, slot, needed=needed)
            missing = _SEGMENT.search(text := text_of(error))
            if missing is not None and int(missing[1], 16) == present:
                raise HistoryLostError(
                    f"replication slot {slot.name} cannot be read after {lsn_text(needed)}, because its log was"
                    f" deleted, for example by pg_resetwal: {text}. {slot.remedy}"
                ) from None
        raise


def explain(server: Server, slot: Slot, *, needed: int) -> int:
    """Return the server's timeline, as `timeline` does.

    Raises: HistoryLostError or TerminalRangefeedError when the slot or the publication was dropped.
    """
    connection = server.connect("explain")
    try:
        slot.require(connection, needed=needed)
        row = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [slot.publication.name]).fetchone()
        present = timeline(connection)
    finally:
        connection.close()
    if row is None:
        raise TerminalRangefeedError(
            f"publication {slot.publication.name} was dropped, so the log can no longer be read. {slot.remedy}"
        )
    return present
