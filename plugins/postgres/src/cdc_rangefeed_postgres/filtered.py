"""What a token says about the row filter of a table in the publication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn

NO_FILTER = ""
"""The code of a table without a row filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """A row filter that the changefeed has set.

    PostgreSQL keeps a filter with the numbers of columns, and a query means their names. So the token has what decides
    whether both still mean the same, see `cdc_rangefeed_postgres.filtered_tables`.
    """

    where: tuple[str, ...]
    """The conditions in SQL that AND joins."""
    columns: tuple[str, ...]
    """The columns in them."""
    found: tuple[str, ...]
    """A code of the filter in the catalog. Two while it is being changed: either may be there."""
    shape: str
    """A code of numbers, names and types of `columns`."""
    writers: tuple[str, ...]
    """A code of the transaction that wrote each of `columns` in the catalog, in the order of their numbers."""
    others: str
    """A code of those that wrote all other columns of the table, dropped ones included."""

    def to_json(self) -> dict[str, Any]:
        return {
            "where": list(self.where),
            "columns": list(self.columns),
            "found": list(self.found),
            "at": [self.shape, self.others, *self.writers],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        shape, others, *writers = value["at"]
        return cls(
            where=tuple(value["where"]),
            columns=tuple(value["columns"]),
            found=tuple(value["found"]),
            shape=shape,
            writers=tuple(writers),
            others=others,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFilter:
    """A row filter that was removed. Changes of before are still decoded with it."""

    where: tuple[str, ...]
    """The conditions in SQL that AND joined."""
    until: int
    """An LSN after its removal."""

    def to_json(self) -> list[Any]:
        return [list(self.where), lsn_text(self.until)]

    @classmethod
    def from_json(cls, value: list[Any]) -> Self:
        where, until = value
        return cls(where=tuple(where), until=parse_lsn(until))
