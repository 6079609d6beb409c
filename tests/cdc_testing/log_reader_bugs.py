"""Mistakes that what reads PostgreSQL's log for the tasks could make, each of a few lines, to be put in by name.

Some are of the planner's process, which has the sessions, and some of the task's, which asks them: see `put`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from cdc_rangefeed_postgres import log_slice
from cdc_rangefeed_postgres.log_ahead import _Session as AheadSession
from cdc_rangefeed_postgres.log_session import LogSession, Piece
from cdc_rangefeed_postgres.log_slice import LogSlice

from cdc_core import RetryableRangefeedError

Patch = Callable[[Any, str, Any], None]
Pieces = Iterator[Any]

_ROWS = b"IUD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """`readers` says which sessions can show it, `put` puts it into this process."""

    mistake: str
    put: Callable[[Patch], None]
    readers: tuple[str, ...] = ("kept", "ahead")


def _given(patch: Patch, change: Callable[[Pieces], Pieces]) -> None:
    """Let all slices of sessions pass through *change*."""
    for session in (LogSession, AheadSession):
        honest: Any = session.slice
        patch(session, "slice", lambda self, start, end, honest=honest: change(honest(self, start, end)))


def _messages(piece: Any) -> list[bytes]:
    return [bytes(piece.data[begin:end]) for begin, end in zip(piece.offsets, piece.offsets[1:], strict=False)]


def _piece(messages: list[bytes]) -> Piece:
    piece = Piece(offsets=array("i", [0]))
    for message in messages:
        piece.add(message)
    return piece


def _without_the_last_row(pieces: Pieces) -> Pieces:
    for piece in pieces:
        messages = _messages(piece)
        last = max((place for place, message in enumerate(messages) if message[0] in _ROWS), default=None)
        yield piece if last is None else _piece(messages[:last] + messages[last + 1 :])


def _twice(pieces: Pieces) -> Pieces:
    for piece in pieces:
        yield piece
        yield piece


def _without_the_first(pieces: Pieces) -> Pieces:
    yield next(pieces)
    found = False
    for piece in pieces:
        if found or len(piece.offsets) == 1:
            yield piece
        found = found or len(piece.offsets) > 1


def _ended_is_complete(patch: Patch) -> None:
    for session, name in ((LogSession, "_give"), (AheadSession, "_take")):

        def give(self: Any, *arguments: Any, honest: Any) -> Any:
            try:
                return honest(self, *arguments)
            except RetryableRangefeedError:
                return None

        patch(session, name, _method(give, honest=getattr(session, name)))


def _method(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Return *function* as one that classes take for a method."""
    bound = partial(function, **fixed)
    return lambda *arguments: bound(*arguments)


def _by_sql_after_a_part(patch: Patch) -> None:
    def from_session(slice_: LogSlice) -> Generator[pa.RecordBatch, None, bool]:
        try:
            yield from log_slice.slice_from(slice_.session, slice_.start, slice_.end)
        except OSError:
            return False
        return True

    patch(log_slice, "_from_session", from_session)


def _stale_shapes(patch: Patch) -> None:
    honest = LogSession._drop

    def drop(self: LogSession) -> None:
        known = dict(self._known)
        honest(self)
        self._known = self._known | known

    patch(LogSession, "_drop", drop)


def _forgets_what_it_dropped(patch: Patch) -> None:
    honest = LogSession._drop

    def drop(self: LogSession) -> None:
        base = self._base
        honest(self)
        self._base = base

    patch(LogSession, "_drop", drop)


def _complete_with_the_beginning(patch: Patch) -> None:
    honest = LogSession._take

    def take(self: LogSession, message: memoryview) -> None:
        honest(self, message)
        self._seen = max(self._seen, self._final + 1)

    patch(LogSession, "_take", take)


def _any_end(patch: Patch) -> None:
    honest = AheadSession.continues, AheadSession.slice

    def first(self: AheadSession, start: int, end: int) -> tuple[int, int]:
        return next(((each.start, each.end) for each in self._ranges if each.start == start), (start, end))

    def continues(self: AheadSession, payload: LogSlice) -> bool:
        return honest[0](self, payload) or (
            not self.failed and bool(self._ranges) and self._ranges[0].start == payload.start
        )

    def slice_(self: AheadSession, start: int, end: int) -> Pieces:
        return honest[1](self, *first(self, start, end))

    patch(AheadSession, "continues", continues)
    patch(AheadSession, "slice", slice_)


BUGS = {
    "a-row-short": Bug(
        mistake="each part of a slice lacks its last row", put=lambda patch: _given(patch, _without_the_last_row)
    ),
    "given-twice": Bug(mistake="each part of a slice comes twice", put=lambda patch: _given(patch, _twice)),
    "begins-late": Bug(
        mistake="a slice begins behind its first part", put=lambda patch: _given(patch, _without_the_first)
    ),
    "ended-is-complete": Bug(mistake="a session that has ended says that a slice is complete", put=_ended_is_complete),
    "by-sql-after-a-part": Bug(
        mistake="what a session has given only in part is read by SQL behind that", put=_by_sql_after_a_part
    ),
    "stale-shapes": Bug(
        mistake="a slice begins with the first shape of a table, not the last", put=_stale_shapes, readers=("kept",)
    ),
    "forgets-what-it-dropped": Bug(
        mistake="a slice is given again without what was dropped of it", put=_forgets_what_it_dropped, readers=("kept",)
    ),
    "complete-with-the-beginning": Bug(
        mistake="a slice is complete when its last transaction begins",
        put=_complete_with_the_beginning,
        readers=("kept",),
    ),
    "any-end": Bug(
        mistake="a session gives a slice that ends elsewhere than the step", put=_any_end, readers=("ahead",)
    ),
}
"""By name."""
