"""TRUNCATE of watched tables, for which PostgreSQL can tell neither rows nor keys.

It gives a table an empty file and drops the old one at its commit, and no snapshot shows the old file. So when the log
shows it, or the catalog for a single partition, nothing can say which rows are to be deleted at the sink.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from cdc_core import TerminalRangefeedError, counted
from cdc_rangefeed_postgres.remedies import READ_ANEW

__all__ = ["Truncate", "note_partitions", "note_tables"]

log = logging.getLogger(__name__)

Truncate = Literal["stop", "keep"]


def note_tables(names: Sequence[str], truncate: Truncate) -> None:
    """Warn of the truncated tables *names*. Raises: TerminalRangefeedError with "stop"."""
    _note(f"table {names[0]} was" if len(names) == 1 else f"tables {', '.join(names)} were", truncate)


def note_partitions(table: str, names: Sequence[str], truncate: Truncate) -> None:
    """Warn of the truncated partitions *names* of *table*. Raises: TerminalRangefeedError with "stop"."""
    which = f"{counted(len(names), 'partition')} ({', '.join(names[:5])})"
    _note(f"table {table}: {which} {'was' if len(names) == 1 else 'were'}", truncate)


def _note(who: str, truncate: Truncate) -> None:
    if truncate == "keep":
        log.warning("%s truncated; the rows stay at the sink", who)
        return
    raise TerminalRangefeedError(
        f"{who} truncated, and a changefeed has no row changes for that. To leave the rows at the sink and continue, "
        f"set truncate = 'keep'. {READ_ANEW}"
    )
