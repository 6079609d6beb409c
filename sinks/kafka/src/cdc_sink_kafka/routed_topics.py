"""Topics that a query gives to rows: which of them can be written, and what is known of those."""

from __future__ import annotations

from collections.abc import Collection

from cdc_sink_kafka.admin import Administrator
from cdc_sink_kafka.clients import Settings


class RoutedTopics:
    """The topics that one sink was given, with `topic_prefix`. They are written as they are: nothing is escaped."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing. The first topic opens a connection, which `close` releases."""
        self._settings = settings
        self._administrator: Administrator | None = None
        self._names: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        """The topics that were admitted."""
        return self._names.keys()

    def full_name(self, topic: str) -> str:
        """Return the name of the topic that a query calls *topic*."""
        return self._settings.topics.routed(topic)

    def admit(self, topic: str) -> str | None:
        """Return when the topic exists, or the broker creates it; or why it never can be written.

        Raises: RetryableSinkError for trouble that may pass.
        """
        name = self.full_name(topic)
        reason = self._settings.topics.refusal(name)
        if reason is None and name in self._settings.context.reserved_topics:
            reason = "is that of the dead letters"
        if reason is None:
            reason = self._connected().admit(name)
        if reason is not None:
            return f"topic '{name}', which its cdc_topic names, {reason}"
        self._names[name] = None
        return None

    def limit(self, name: str) -> int | None:
        """Return `max.message.bytes` of topic *name*, None if it cannot be read."""
        return self._connected().limits([name])[name]

    def close(self) -> None:
        """Release the connection."""
        administrator, self._administrator = self._administrator, None
        if administrator is not None:
            administrator.close()

    def _connected(self) -> Administrator:
        if self._administrator is None:
            self._administrator = self._settings.administrator(running=True)
        return self._administrator
