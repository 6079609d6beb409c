"""Log records: which changefeed each is about, whoever logs it; and records as JSON."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_CONTROL = re.compile("(\x1b\\[[\\d;]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
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


def printable(text: str, *, colored: bool = False) -> str:
    """Return *text* with control characters as `\\u001b`: a name or a value must not control a terminal.

    Tabs and line ends stay, and in a *colored* text the colors.
    """

    def shown(found: re.Match[str]) -> str:
        return found[0] if colored and found[1] else f"\\u{ord(found[0][0]):04x}{found[0][1:]}"

    return _CONTROL.sub(shown, text)


class NamingFormatter(logging.Formatter):
    """Puts the changefeed before a message that does not name it. Lines of one record do not look like others."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record).replace("\n", "\n  "))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is Python's)
        name = changefeed_of(record)
        if name is not None and not any(f"{what} '{name}'" in record.message for what in ("changefeed", "job")):
            record.message = f"changefeed '{name}': {record.message}"
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `changefeed`, `event`, `message`, and `details` and `traceback` if any.

    `changefeed` is null in lines that are about none, or about several. Masks nothing: see `MaskingFilter`.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        values: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "changefeed": changefeed_of(record),
            "event": event_of(record),
            "message": message,
        }
        details = details_of(record)
        if details is not None:
            values["details"] = details
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        if trace:
            values["traceback"] = trace
        return printable(json.dumps(values, ensure_ascii=False))


def event_of(record: logging.LogRecord) -> str:
    """Return where the record was logged, as a name to filter by: `engine.run.wait`. `extra` may say it instead."""
    given = getattr(record, "event", None)
    if isinstance(given, str):
        return given
    return f"{record.name.removeprefix('cdc_core.')}.{record.funcName.strip('_<>')}"


def details_of(record: logging.LogRecord) -> dict[str, Any] | None:
    """Return the details of a record of the event log, None of all others: `extra` says it."""
    found = getattr(record, "details", None)
    return found if isinstance(found, dict) else None
