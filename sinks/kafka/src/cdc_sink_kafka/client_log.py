"""Passes what librdkafka reports to `logging`."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from confluent_kafka import KafkaError, ThrottleEvent

from cdc_core import RetryableSinkError, TerminalSinkError
from cdc_sink_kafka.failures import refusal_remedy

log = logging.getLogger(__name__)

_EXPECTED = ("enable.gapless.guarantee is experimental", "Coordinator load in progress")
"""Log lines about settings and states that are intended."""
_DUPLICATES = ("FAIL ", "ERROR ", "FATAL ")
"""Log lines that the client also reports as errors, such as at every attempt to connect."""
_BY_VALUE = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
)
"""Errors of connections, the most informative first."""
_CONNECTION = re.compile(r"^(\w+://)?[^\s:]+:\d+/(bootstrap|\d+): ")
_DETAILS = re.compile(r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")


class ClientLog:
    """Takes log lines and errors of a client while it is polled, and remembers the errors of its connections."""

    def __init__(self, *, level: int = logging.WARNING) -> None:
        """Log errors at *level*. Use a low level if the error is also raised."""
        self._level = level
        self._troubles: dict[int, str] = {}
        self.throttled_until = 0.0
        """Until when, by the monotonic clock, a quota of the brokers lets the client wait."""

    def properties(self) -> dict[str, Any]:
        """Return the properties that make a client report here."""
        return {"error_cb": self._on_error, "throttle_cb": self._on_throttle, "logger": _logger, "log_level": 5}

    @property
    def codes(self) -> frozenset[int]:
        """The codes of the errors so far."""
        return frozenset(self._troubles)

    def trouble(self) -> str:
        """Return the most informative error of a connection so far, or an empty text."""
        return next((self._troubles[code] for code in _BY_VALUE if code in self._troubles), "")

    def failure(self, text: str) -> RetryableSinkError | TerminalSinkError:
        """Return the error for brokers that do not answer, as *text* says: whether they refuse the connection."""
        for code in (code for code in _BY_VALUE if code in self._troubles):
            trouble = self._troubles[code]
            remedy = refusal_remedy(code, trouble)
            if remedy is None:
                return RetryableSinkError(f"{text}: {trouble}")
            return TerminalSinkError(f"{text}: {trouble}; {remedy}", repairable=True)
        return RetryableSinkError(text)

    def forget(self) -> None:
        """Forget the errors: the connections work again."""
        self._troubles.clear()

    def _on_throttle(self, event: ThrottleEvent) -> None:
        log.info("Kafka: a quota of broker %s delays the next messages by %.1f s", event.broker_id, event.throttle_time)
        self.throttled_until = max(self.throttled_until, time.monotonic() + event.throttle_time)

    def _on_error(self, error: KafkaError) -> None:
        text = plain(error.str())
        if error.code() not in self._troubles:
            log.log(self._level, "Kafka: %s", text)
        self._troubles[error.code()] = text


def plain(text: str) -> str:
    """Return librdkafka's *text* without its names of connections and threads."""
    return _DETAILS.sub("", _CONNECTION.sub("", text.strip())).rstrip(".")


class _Worthwhile(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not text.startswith(_DUPLICATES) and not any(expected in text for expected in _EXPECTED)


_logger = logging.getLogger("cdc_sink_kafka.librdkafka")
_logger.addFilter(_Worthwhile())
