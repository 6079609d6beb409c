"""A planner of PostgreSQL in a process of its own, as the engine runs it, which a test can kill, stop and starve."""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import resource
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from cdc_rangefeed_postgres.log_ahead import _Session as AheadSession
from cdc_rangefeed_postgres.log_session import LogSession, Piece
from cdc_rangefeed_postgres.planner import PostgresPlanner

from cdc_core import RangefeedContext, Rescan, RetryableRangefeedError, Slice, StepLimit, StepPlanner, Timestamp, Token

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


Settings = Mapping[str, Any]
"""By `module.NAME`, a module of the plugin."""


class PlannerProcess(StepPlanner):
    """Begins its process with the first step. When that has ended, all calls raise RetryableRangefeedError."""

    def __init__(self, context: RangefeedContext, settings: Settings, bug: str = "") -> None:
        super().__init__(context)
        self._begin = context, settings, bug
        self._process: subprocess.Popen[bytes] | None = None

    def now(self) -> Timestamp:
        planner = PostgresPlanner(self.context)
        try:
            return planner.now()
        finally:
            planner.close()

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        token: Token = self.call("planner.advance", start, after=after, limit=limit)
        return token

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        slices: Sequence[Slice] = self.call("planner.slices", start, end, after=after)
        return slices

    def scan_again(self, start: Token, rescans: Sequence[Rescan]) -> Token | None:
        token: Token | None = self.call("planner.scan_again", start, rescans)
        return token

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Return what the process has for this name in `Hosted`, or what that returns."""
        if self._process is None:
            paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", "cdc_testing.planner_process"]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | paths
            )
            self._send(self._begin)
        succeeded, value = self._send((name, arguments, named))
        if not succeeded:
            raise value
        return value

    def signal(self, number: int) -> None:
        """Send a signal to the process, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _send(self, request: object) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            raise RetryableRangefeedError("the process of the planner has ended") from error


class Hosted:
    """What the process has."""

    def __init__(self, context: RangefeedContext, settings: Settings, bug: str) -> None:
        for place, value in settings.items():
            module, _, name = place.rpartition(".")
            setattr(importlib.import_module(f"cdc_rangefeed_postgres.{module}"), name, value)
        if bug:
            BUGS[bug].put(setattr)
        self.planner = PostgresPlanner(context)

    def starve(self, more_bytes: int) -> None:
        """Let the process have no more memory than now, and *more_bytes*."""
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def serve(requests: Any, answers: Any) -> None:
    """Carry out requests until there are no more. The first is what `Hosted` is made of."""
    hosted: Hosted | None = None
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        answer: tuple[bool, Any] = True, None
        try:
            if hosted is None:
                hosted = Hosted(*request)
            else:
                name, arguments, named = request
                found = attrgetter(name)(hosted)
                answer = True, found(*arguments, **named) if callable(found) else found
        except Exception as error:
            answer = False, error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    logging.getLogger().addHandler(logging.NullHandler())
    serve(sys.stdin.buffer, sys.stdout.buffer)
