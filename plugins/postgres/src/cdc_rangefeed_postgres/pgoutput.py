"""Turns pgoutput messages into row batches, column by column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core import RowBatch, Timestamp
from cdc_rangefeed_postgres.relations import Relation, relation_columns
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["LogCounters", "LogDecoder", "Lookup", "Relation", "TableVersion", "relation_columns"]

Lookup = Callable[[int, TableVersion, pa.StructArray, tuple[str, ...]], tuple[npt.NDArray[np.bool_], pa.StructArray]]
"""`(relid, version, keys, columns)`: read the present values of *columns* in the rows with these *keys*.

*keys* has `version.schema.key_type`. Returns, aligned with *keys*, whether each row exists, and a struct of the columns
in `version.schema`'s types (anything where the row does not exist). A column that the table no longer has counts as a
row that does not exist.
"""


@dataclass(slots=True)
class LogCounters:
    """What a decoder has met so far."""

    transactions: int = 0
    rows: int = 0
    """Rows given out."""
    superseded: int = 0
    """Writes followed by another write of their key in the same transaction, and therefore not given out."""
    incomplete: int = 0
    """Versions not given out because an unchanged TOAST value is in no row any more; a later delete is in the log."""


class LogDecoder:
    """Decodes one slice of a slot's log, in consecutive arrays of messages.

    Keeps the transactions with `start_lsn <= final_lsn < end_lsn` (final_lsn of their BEGIN). Their `updated` strictly
    rises in log order: the commit time, moved to be greater than *after* and than the transaction before, and to have
    a wall of at most `until.wall - 999`. Rows of one transaction share it, unless the transaction spans several calls
    of `decode`: each later call's rows take the next logical value. So *until* must lie at least a microsecond after
    *after*.

    *versions* lists, for each relation id, the versions that its rows may have in this slice, in log order.
    *binary* says which form the log was asked for. *lookup* fills unchanged TOAST values that the log does not have.

    Raises: RetryableRangefeedError when the log shows a version that is not listed; TerminalRangefeedError for a
    TRUNCATE, and for a value that no Arrow type of ours can hold.
    """

    def __init__(
        self,
        versions: Mapping[int, Sequence[TableVersion]],
        *,
        start_lsn: int,
        end_lsn: int,
        after: Timestamp,
        until: Timestamp | None = None,
        binary: bool,
        diff: bool = False,
        mvcc: bool = False,
        lookup: Lookup | None = None,
        target_bytes: int = 2 << 20,
    ) -> None:
        self._slice = (versions, start_lsn, end_lsn, until, binary, diff, mvcc, lookup, target_bytes)
        self.latest = after
        """The greatest `updated` given so far; *after* before there is any."""
        self.counters = LogCounters()

    def decode(self, messages: pa.Array) -> list[RowBatch]:
        """Return the rows of *messages*, a binary array of whole pgoutput messages that follow those given before.

        Rows of one table and version come together, in batches of about `target_bytes`; rows of a key come in order.
        """
        raise NotImplementedError
