"""Mistakes that a session which reads PostgreSQL's log for tasks could make, each of a few lines, put in by name."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cdc_rangefeed_postgres.log_ahead import _Session as AheadSession
from cdc_rangefeed_postgres.log_session import LogSession, Piece

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


def _forgets_what_it_dropped(patch: Patch) -> None:
    honest = LogSession._drop

    def drop(self: LogSession) -> None:
        base = self._base
        honest(self)
        self._base = base

    patch(LogSession, "_drop", drop)


BUGS = {
    "a-row-short": Bug(
        mistake="each part of a slice lacks its last row", put=lambda patch: _given(patch, _without_the_last_row)
    ),
    "given-twice": Bug(mistake="each part of a slice comes twice", put=lambda patch: _given(patch, _twice)),
    "begins-late": Bug(
        mistake="a slice begins behind its first part", put=lambda patch: _given(patch, _without_the_first)
    ),
    "forgets-what-it-dropped": Bug(
        mistake="a slice is given again without what was dropped of it", put=_forgets_what_it_dropped, readers=("kept",)
    ),
}
"""By name."""
