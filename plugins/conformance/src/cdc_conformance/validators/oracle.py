"""The callbacks by which validators read the source, and how to retry them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from cdc_conformance.validators.events import Key, Row, key_text, same
from cdc_core import Timestamp

__all__ = ["AsOf", "Change", "Commit", "State", "StateAt", "differences", "retried"]

AsOf = Callable[[str, Key, Timestamp], Row | None]
"""Returns the row with a key in a topic's table as of a time; None if there was none."""
State = Mapping[str, Mapping[Key, Row]]
"""Live rows by topic and key."""
StateAt = Callable[[Timestamp], State]
"""Returns all rows of all watched tables as of a time."""
Change = tuple[str, Key, Row | None]
"""Topic, key, and the new row; None for a delete."""
Commit = Sequence[Change]
"""The changes of one transaction, each row once."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def retried(
    oracle: Callable[_P, _T], *, on: tuple[type[Exception], ...], limit_s: float = 60.0, pause_s: float = 0.1
) -> Callable[_P, _T]:
    """Return *oracle* with retries: it is called again after an error in *on*, for *limit_s* after the first one.

    For an oracle that reads a database which tests kill. Other errors, and the last one, are raised, because an error
    is not an answer. Do not use a validator after its oracle has raised.
    """

    def ask(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        deadline: float | None = None
        while True:
            try:
                return oracle(*args, **kwargs)
            except on:
                deadline = deadline or time.monotonic() + limit_s
                if time.monotonic() >= deadline:
                    raise
                time.sleep(pause_s)

    return ask


def differences(found: State, expected: State) -> Iterator[tuple[str, Key, Row | None, Row | None]]:
    """Yield topic, key, found and expected row wherever two states differ."""
    for topic in sorted({**found, **expected}):
        there, wanted = found.get(topic, {}), expected.get(topic, {})
        if there == wanted:
            continue
        for key in sorted({**there, **wanted}, key=key_text):
            if not same(there.get(key), wanted.get(key)):
                yield topic, key, there.get(key), wanted.get(key)
