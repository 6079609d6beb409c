"""Log records as lines of JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from cdc_core.telemetry.log_names import changefeed_of

__all__ = ["JsonFormatter", "details_of", "event_of"]


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
        return json.dumps(values, ensure_ascii=False)


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
