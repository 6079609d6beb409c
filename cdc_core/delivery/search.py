"""The search for bad rows: into which parts refused rows are divided, until the bad ones are alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, Self, TypeVar


class Rows(Protocol):
    """A run of rows that can be cut without a copy."""

    def __len__(self) -> int: ...

    def slice(self, offset: int, length: int | None = None) -> Self: ...


R = TypeVar("R", bound=Rows)


class BadRowSearch(Generic[R]):
    """Divides refused rows into at most *parts* parts of about one size, or into fewer when it has a hint.

    The caller tries each part alone and asks again for a part that is refused. Every part has fewer rows than what was
    refused, so the search ends with single rows. No part but a hinted row has more than half of the rows, so many bad
    rows cost no more with hints than without. A hint that proves wrong ends the trust in all later ones.
    """

    def __init__(self, *, parts: int) -> None:
        self._parts = parts
        self._suspect: R | None = None
        self._trusted = True

    def narrow(self, refused: Sequence[R], hint: int | None) -> list[list[R]]:
        """Return the rows of *refused*, of which there are at least two, in order and in parts.

        *hint* is the index of a row that is probably bad; it becomes a part of its own. None, or an index outside of
        the rows, is not a hint.
        """
        count = sum(map(len, refused))
        if hint is None or not 0 <= hint < count or not self._trusted:
            return list(divided(refused, self._parts))
        (self._suspect,) = _cut(refused, hint, hint + 1)
        before, after = _cut(refused, 0, hint), _cut(refused, hint + 1, count)
        return [*divided(before, 2), [self._suspect], *divided(after, 2)]

    def accepted(self, rows: R) -> None:
        """Learn that *rows*, tried alone, were accepted: if they were the row of the last hint, it was wrong."""
        if rows is self._suspect:
            self._trusted = False


def divided(batches: Sequence[R], parts: int) -> Iterator[list[R]]:
    """Yield the rows of *batches* in order, in at most *parts* parts of about one size, none of them empty."""
    size = -(-sum(map(len, batches)) // parts)
    part: list[R] = []
    room = size
    for rows in batches:
        offset = 0
        while offset < len(rows):
            taken = min(room, len(rows) - offset)
            part.append(rows.slice(offset, taken))
            offset, room = offset + taken, room - taken
            if not room:
                yield part
                part, room = [], size
    if part:
        yield part


def _cut(batches: Sequence[R], start: int, stop: int) -> list[R]:
    """Return the rows of *batches* from index *start* up to, and without, *stop*."""
    found, offset = [], 0
    for rows in batches:
        first, last = max(start - offset, 0), min(stop - offset, len(rows))
        if first < last:
            found.append(rows.slice(first, last - first))
        offset += len(rows)
    return found
