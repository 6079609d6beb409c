"""Which changefeed a log record is about, whoever logs it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["NamingFormatter", "changefeed_of", "logged_as"]

_NAMED = re.compile(r"(?:changefeed|job) '([A-Za-z0-9_-]{1,40})'")
_THREAD = re.compile(r"\bchangefeed ([A-Za-z0-9_-]{1,40})$")
_WORKED_ON: ContextVar[str | None] = ContextVar("changefeed", default=None)


@contextmanager
def logged_as(name: str) -> Iterator[None]:
    """Have what the block logs, by any logger in this thread, be about changefeed *name* unless it says otherwise.

    A thread that is started inside begins without it: have it run in `contextvars.copy_context()`.
    """
    before = _WORKED_ON.get()
    _WORKED_ON.set(name)
    try:
        yield
    finally:
        _WORKED_ON.set(before)  # not `reset`: a generator may be closed in another thread


def changefeed_of(record: logging.LogRecord) -> str | None:
    """Return the changefeed that *record* is about, None for none or several. Call it in the thread that logs."""
    found = _NAMED.match(record.getMessage())
    if found is None and (name := _WORKED_ON.get()):
        return name
    found = found or _THREAD.search(record.threadName or "")
    return None if found is None else found[1]


class NamingFormatter(logging.Formatter):
    """Puts the changefeed before a message that does not name it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is Python's)
        name = changefeed_of(record)
        if name is not None and not any(found == name for found in _NAMED.findall(record.message)):
            record.message = f"changefeed '{name}': {record.message}"
        return super().formatMessage(record)
