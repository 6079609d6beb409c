"""What librdkafka says, on its way to `logging`."""

from __future__ import annotations

import logging
import re
from typing import Any

from confluent_kafka import KafkaError

__all__ = ["ClientLog", "plain"]

log = logging.getLogger(__name__)

_EXPECTED = ("enable.gapless.guarantee is experimental", "Coordinator load in progress")
"""Notes about what is meant to be so."""
_TOLD_TWICE = ("FAIL ", "ERROR ")
"""Notes about what the client tells as an error as well, at every attempt to connect."""
_TELLING = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
"""Errors of connections, the most telling first."""
_CONNECTION = re.compile(r"^(\w+://)?[^\s:]+:\d+/(bootstrap|\d+): ")
_DETAILS = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")


class ClientLog:
    """Takes a client's notes and errors while it is polled, and remembers what ails its connections."""

    def __init__(self, *, level: int = logging.WARNING) -> None:
        """Take at what *level* errors are logged: less where they become an error of ours that is shown."""
        self._level = level
        self._troubles: dict[int, str] = {}

    def properties(self) -> dict[str, Any]:
        """Return what makes a client write here."""
        return {"error_cb": self._on_error, "logger": _logger, "log_level": 5}

    @property
    def codes(self) -> frozenset[int]:
        """The codes of the errors so far."""
        return frozenset(self._troubles)

    def trouble(self) -> str:
        """Return the most telling error of a connection so far, or nothing."""
        return next((self._troubles[code] for code in _TELLING if code in self._troubles), "")

    def last_trouble(self) -> str:
        """Return `trouble` as the end of a sentence."""
        return f": {self.trouble()}" if self._troubles else ""

    def forget(self) -> None:
        """All is well again."""
        self._troubles.clear()

    def _on_error(self, error: KafkaError) -> None:
        text = plain(error.str())
        if error.code() not in self._troubles:
            log.log(self._level, "Kafka: %s", text)
        self._troubles[error.code()] = text


def plain(text: str) -> str:
    """Return what librdkafka says without its own names of connections and threads."""
    return _DETAILS.sub("", _CONNECTION.sub("", text.strip())).rstrip(".")


class _Worthwhile(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not text.startswith(_TOLD_TWICE) and not any(expected in text for expected in _EXPECTED)


_logger = logging.getLogger("cdc_sink_kafka.librdkafka")
_logger.addFilter(_Worthwhile())
