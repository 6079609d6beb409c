"""The option `webhook_sink_config`: batches and retries, named as in CockroachDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core import Duration, option, parse_options

_OWNER = "option 'webhook_sink_config'"
_TABLES = ("Flush", "Retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushConfig:
    """The entries of `Flush`. If all are 0, each message has its own request; otherwise 0 means no limit."""

    Messages: int = option(0, doc="Send a batch when it has this many messages.")
    Bytes: int = option(0, doc="Send a batch when its messages total this many bytes.")
    Frequency: Duration = option(
        Duration(0.0), doc="Send a batch, even if it is not full, this long after its first message arrived."
    )

    def __post_init__(self) -> None:
        for name in ("Messages", "Bytes", "Frequency"):
            if getattr(self, name) < 0:
                raise ValueError(f"'Flush.{name}' must not be negative")
        if (self.Messages or self.Bytes) and not self.Frequency:
            raise ValueError("'Flush.Frequency' is not set, so messages may never be sent. Set it, for example to '1s'")

    @property
    def single(self) -> bool:
        """Whether each message has its own request."""
        return not (self.Messages or self.Bytes or self.Frequency)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """The entries of `Retry`."""

    Max: str = option(
        "3",
        doc="How many times to retry a request before the step fails: a number, or `inf`. A failure that only a"
        " different setting can fix is not retried.",
    )
    Backoff: Duration = option(
        Duration(0.5), doc="Time to wait before the first retry. The wait doubles with each retry, up to 30 s."
    )

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit <= 0:
            raise ValueError(f"'Retry.Max' is {self.limit}, but must be a whole number of at least 1, or 'inf'")
        if self.Backoff < 0:
            raise ValueError("'Retry.Backoff' must not be negative")

    @property
    def limit(self) -> int | None:
        """How often a request is retried at most; None for no limit. Raises: ValueError."""
        if self.Max.lower() == "inf":
            return None
        try:
            return int(self.Max)
        except ValueError:
            raise ValueError(
                f"'Retry.Max' is '{self.Max}', but must be a whole number of at least 1, or 'inf'"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """The entries of `webhook_sink_config`."""

    Flush: dict[str, Any] = option(None, doc="Entries that decide when a batch is sent.")
    Retry: dict[str, Any] = option(None, doc="Entries that decide how a failed request is retried.")

    @classmethod
    def of(cls, value: Mapping[str, Any] | None) -> SinkConfig:
        """Return the parsed *value* of the option. Raises: OptionError."""
        values: dict[str, Any] = {}
        for name, entry in (value or {}).items():
            table, dot, rest = name.partition(".")
            if dot and table in _TABLES:
                values.setdefault(table, {})[rest] = entry
            elif name in _TABLES and isinstance(entry, Mapping):
                values.setdefault(name, {}).update(entry)
            else:
                values[name] = entry
        config = parse_options(cls, values, owner=_OWNER)
        config.flush()
        config.retry()
        return config

    def flush(self) -> FlushConfig:
        """Return the entries of `Flush`. Raises: OptionError."""
        return parse_options(FlushConfig, self.Flush or {}, owner=_OWNER)

    def retry(self) -> RetryConfig:
        """Return the entries of `Retry`. Raises: OptionError."""
        entries = dict(self.Retry or {})
        if isinstance(entries.get("Max"), int) and not isinstance(entries["Max"], bool):
            entries["Max"] = str(entries["Max"])
        return parse_options(RetryConfig, entries, owner=_OWNER)
