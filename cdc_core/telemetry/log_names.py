"""Which changefeed a log record is about, whoever logs it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["NamingFormatter", "changefeed_of", "logged_as"]

_WORKED_ON: ContextVar[str | None] = ContextVar("changefeed", default=None)


@contextmanager
def logged_as(name: str) -> Iterator[None]:
    """Have what the block logs, by any logger in this thread, be about changefeed *name*.

    A record says otherwise with `extra={"changefeed": NAME}`. A thread that is started inside begins without it: have
    it run in `contextvars.copy_context()`.
    """
    before = _WORKED_ON.get()
    _WORKED_ON.set(name)
    try:
        yield
    finally:
        _WORKED_ON.set(before)  # not `reset`: a generator may be closed in another thread


def changefeed_of(record: logging.LogRecord) -> str | None:
    """Return the changefeed that *record* is about, None for none or several. Call it in the thread that logs."""
    return getattr(record, "changefeed", None) or _WORKED_ON.get() or None


class NamingFormatter(logging.Formatter):
    """Puts the changefeed before a message that does not name it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is Python's)
        name = changefeed_of(record)
        if name is not None and not any(f"{what} '{name}'" in record.message for what in ("changefeed", "job")):
            record.message = f"changefeed '{name}': {record.message}"
        return super().formatMessage(record)
