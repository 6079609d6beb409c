"""What validators ask of the source: callbacks, and how one bears with a database that is down for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeVar

from cdc_conformance.validators.events import Key, Row, key_text, same
from cdc_core import Timestamp

__all__ = ["AsOf", "Change", "Commit", "State", "StateAt", "differences", "retried"]

AsOf = Callable[[str, Key, Timestamp], Row | None]
"""Returns the row of a topic's table that has a key, as of a time; None where there was none."""
State = Mapping[str, Mapping[Key, Row]]
"""Live rows by topic and key."""
StateAt = Callable[[Timestamp], State]
"""Returns all rows of all watched tables as of a time."""
Change = tuple[str, Key, Row | None]
"""Topic, key, and what became of the row, None when it was deleted."""
Commit = Sequence[Change]
"""What one transaction changed, each row once."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def retried(
    oracle: Callable[_P, _T], *, on: tuple[type[Exception], ...], limit_s: float = 60.0, pause_s: float = 0.1
) -> Callable[_P, _T]:
    """Return *oracle* so that it is asked again after one of the errors *on*, for *limit_s* after its first one.

    For an oracle that asks a database which is killed now and then. Other errors, and the last one, are raised: a
    validator never takes an oracle's error for an answer. One that was interrupted so is not to be asked any more.
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
