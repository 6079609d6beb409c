"""Where the attributes of a composite type are in a row that was written when the type had others.

A text of a row has the attributes that the type had then, in the order of their numbers, and does not say which. A new
attribute gets a number that none had before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_rangefeed_postgres.types import TypeInfo

__all__ = ["UnknownAttributesError", "places"]


class UnknownAttributesError(Exception):
    """A row can be of two times at which the type had other attributes. The text is the type's name."""


def places(info: TypeInfo, count: int) -> tuple[int | None, ...]:
    """Return where each attribute of *info* is in a row of *count* values; None for one that the row does not have.

    Raises: UnknownAttributesError when that depends on the order in which attributes were added and dropped.
    """
    now = info.numbers or tuple(range(1, len(info.fields) + 1))
    if not info.mixed and count == len(now):
        return tuple(range(count))
    found = set(_ways(now, info.attributes or max(now, default=0), *(info.before or ((), 0)), count))
    if not now:
        return ()
    if len(found) != 1 or None in found:
        raise UnknownAttributesError(info.name)
    return next(way for way in found if way is not None)


def _ways(
    now: Sequence[int], last: int, then: Sequence[int], last_then: int, count: int
) -> Iterator[tuple[int | None, ...] | None]:
    """Yield the places for each number of attributes that had been added by then; None where they are not certain."""
    for added in range(last_then, last + 1):
        had = [*then, *range(last_then + 1, added + 1)]
        doomed = [number for number in had if number not in now]
        dropped = len(had) - count
        if not 0 <= dropped <= len(doomed):
            continue
        way: list[int | None] = []
        for number in now:
            if number not in had:
                way.append(None)
                continue
            below = sum(other < number for other in doomed)
            least, most = max(0, dropped - (len(doomed) - below)), min(dropped, below)
            if least != most:
                yield None
                break
            way.append(had.index(number) - least)
        else:
            yield tuple(way)
