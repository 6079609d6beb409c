"""What an audit finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cdc_core.schema import TableName
from cdc_core.timestamp import Timestamp

__all__ = ["Difference", "Figures", "Finding"]


class Finding(StrEnum):
    """What is wrong with a row at the destination."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row that is not the same. Values are for messages, see `shown_value`."""

    table: TableName
    finding: Finding
    key: Mapping[str, Any]
    source: Mapping[str, Any] = field(default_factory=dict)
    destination: Mapping[str, Any] = field(default_factory=dict)
    """Of a row that is `different`: the columns that differ, with their values on either side."""


@dataclass(slots=True, kw_only=True)
class Figures:
    """What an audit has compared so far."""

    cut: Timestamp = Timestamp()
    """The mark that the destination was compared at."""
    upto: Timestamp = Timestamp()
    """The mark up to which changes may explain a row that differs at `cut`."""
    tables: int = 0
    rows: int = 0
    """Rows that the source has."""
    changed: int = 0
    """Rows that changed between the two marks: each is the same as one of its versions."""
    missing: int = 0
    extra: int = 0
    different: int = 0

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.different
