"""Hybrid logical clock timestamps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_TEXT = re.compile(r"(\d+)\.(\d{10})")
_NANOSECONDS = re.compile(r"[0-9]+")
_FRACTION = re.compile(r"[.,](\d{1,9})(?=[Zz+-])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CENTURY = range(946_684_800 * 10**9, 4_102_444_800 * 10**9)
"""Nanoseconds of the years 2000 to 2099."""
_PER_UNIT = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3}
_MAX_WALL = 2**63 - 1
_MAX_LOGICAL = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time: wall nanoseconds since 1970 UTC, then a logical counter that breaks ties.

    The text form is CockroachDB's, everywhere: `"<wall>.<logical, 10 digits>"`.
    """

    wall: int = 0
    logical: int = 0

    def __post_init__(self) -> None:
        if self.wall < 0 or not 0 <= self.logical <= _MAX_LOGICAL:
            raise ValueError(f"timestamp out of range: wall={self.wall} logical={self.logical}")

    @classmethod
    def parse(cls, text: str) -> Timestamp:
        """Return the timestamp that `str` wrote. Raises: ValueError on any other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"not a timestamp: {text!r} (expected '<wall ns>.<logical, 10 digits>')")
        return cls(int(found.group(1)), int(found.group(2)))

    @staticmethod
    def is_text(text: str) -> bool:
        """Return whether `parse` accepts *text*."""
        try:
            Timestamp.parse(text)
        except ValueError:
            return False
        return True

    @staticmethod
    def is_number(text: str) -> bool:
        """Return whether `read` takes *text* as nanoseconds, or refuses it because of its size."""
        return _NANOSECONDS.fullmatch(text) is not None

    @classmethod
    def read(cls, text: str) -> Timestamp:
        """Return the timestamp that a person wrote.

        In ISO 8601 with a time zone, as nanoseconds since 1970 UTC, or in the text form. Raises: ValueError, also for
        nanoseconds outside the years 2000 to 2099, because such a number has another unit, and after the year 2262,
        because 64 bits cannot represent later nanoseconds.
        """
        if _TEXT.fullmatch(text):
            return cls.parse(text)._in_range()
        if cls.is_number(text):
            return cls(_nanoseconds(text))
        fraction = _FRACTION.search(text)
        seconds = _FRACTION.sub("", text, count=1)
        try:
            moment = None if "." in seconds or "," in seconds else datetime.fromisoformat(seconds)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(
                "must be a time with its time zone (2026-01-31T12:00:00Z), nanoseconds since 1970, or a resolved"
                " timestamp"
            )
        wall = (moment - _EPOCH) // timedelta(seconds=1) * 10**9
        return cls(wall + int(fraction[1].ljust(9, "0") if fraction else 0))._in_range()

    def _in_range(self) -> Timestamp:
        if self.wall > _MAX_WALL:
            raise ValueError("must be a time before the year 2262")
        return self

    def __str__(self) -> str:
        return f"{self.wall}.{self.logical:010d}"

    def __bool__(self) -> bool:
        return self.wall != 0 or self.logical != 0

    def next(self) -> Timestamp:
        """Return the smallest timestamp after this one."""
        if self.logical == _MAX_LOGICAL:
            return Timestamp(self.wall + 1, 0)
        return Timestamp(self.wall, self.logical + 1)

    def prev(self) -> Timestamp:
        """Return the greatest timestamp before this one. Raises: ValueError for zero."""
        if self.logical == 0:
            return Timestamp(self.wall - 1, _MAX_LOGICAL)
        return Timestamp(self.wall, self.logical - 1)

    def to_datetime(self) -> datetime:
        """Return the wall part in UTC, truncated to microseconds."""
        return _EPOCH + timedelta(microseconds=self.wall // 1000)


def _nanoseconds(text: str) -> int:
    number = int(text) if len(text) <= 19 else _CENTURY.stop
    if number in _CENTURY:
        return number
    for unit, size in _PER_UNIT.items():
        if number * size in _CENTURY:
            raise ValueError(f"must be in nanoseconds since 1970, but is in {unit}; write {number * size}")
    raise ValueError(
        "must be in nanoseconds since 1970, but this number is not a time in the years 2000 to 2099; write a time "
        "with a time zone such as 2026-01-31T12:00:00Z"
    )
