"""Transactions of the simulated database and the intents that they write."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cdc_conformance.simulated.shapes import Cells
from cdc_core import Timestamp

__all__ = ["Intent", "Row", "Status", "Transaction"]

Row = tuple[str, int]
"""Full name of a table, and a row's `id`."""


class Status(StrEnum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class Intent:
    """A version that is not committed yet, or not known to be. It commits at `timestamp` or later."""

    timestamp: Timestamp
    cells: Cells | None


@dataclass(slots=True, kw_only=True)
class Transaction:
    """A transaction with a coordinator on the node `gateway`.

    `timestamp` is when it would commit now; it only increases. `intents` are the unresolved ones. After a commit some
    may stay for a while: they hold back the resolved timestamp, although readers see the new versions.
    """

    name: str
    gateway: int
    timestamp: Timestamp
    status: Status = Status.OPEN
    intents: dict[Row, Intent] = field(default_factory=dict)
