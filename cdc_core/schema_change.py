"""Changes of a watched table's shape, and what a changefeed does about them.

A **schema boundary** is a point of a source's history at which a table changes. No resolved mark passes it before the
policy has been carried out: the rows that exist are read again, or the changefeed stops, or neither is wanted.

The options and their meaning are those of CockroachDB, see "Schema changes" in its changefeed messages page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from cdc_core.errors import TerminalRangefeedError
from cdc_core.remedies import CONTINUE_WITH_POLICY
from cdc_core.timestamp import Timestamp


class ShapeChange(Enum):
    """What happened to a table's shape. The value says whether `schema_change_events = "default"` includes it."""

    COLUMN_ADDED = ("column added", False)
    """A column was added that is null in existing rows."""
    COLUMN_FILLED = ("column filled", True)
    """A column was added that has a value in existing rows."""
    COLUMN_DROPPED = ("column dropped", True)
    COLUMN_RENAMED = ("column renamed", False)
    VALUES_CHANGED = ("values changed", True)
    """A column's type changed, or its values were computed again."""
    KEY_CHANGED = ("key changed", True)
    """Rows have new keys. The rows under their old keys remain at the destination."""

    @property
    def is_default(self) -> bool:
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A change of one table. *what* describes it in a clause, such as `column note was added with a default`."""

    table: str
    kind: ShapeChange
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChangeRules:
    """The user's choices for schema boundaries. Picklable."""

    events: Literal["default", "column_changes"] = "default"
    policy: Literal["backfill", "nobackfill", "stop"] = "backfill"

    def tables_to_read_again(self, changes: Iterable[SchemaChange], *, resolved: Timestamp) -> list[str]:
        """Return the tables whose current rows must follow, as a backfill.

        Called by the planner of a rangefeed when it finds *changes* after the last step, which ended at *resolved*.
        Raises: TerminalRangefeedError when the policy is to stop.
        """
        found = [change for change in changes if change.kind.is_default or self.events == "column_changes"]
        if found and self.policy == "stop":
            told = "; ".join(f"table {change.table}: {change.what}" for change in found)
            raise TerminalRangefeedError(
                f"{told}, after {resolved}, and schema_change_policy is 'stop'. To continue, {CONTINUE_WITH_POLICY}"
            )
        return list(dict.fromkeys(change.table for change in found)) if self.policy == "backfill" else []
