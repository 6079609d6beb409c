"""Notices that a topic was deleted while the changefeed was running."""

from __future__ import annotations

import time
from collections.abc import Collection

from cdc_core import ALL_AGAIN, RUN_AGAIN, CdcError, DestinationLostError, RetryableSinkError
from cdc_sink_kafka.admin import NO_ID, Administrator
from cdc_sink_kafka.clients import Settings
from cdc_sink_kafka.failures import Failure

_EVERY_S = 1.0
_SURE_AFTER_S = 4.0
_ASK_S = 0.5


class TopicDeletionCheck:
    """Compares the ids of the changefeed's topics with those that this process saw first.

    Brokers without topic ids only reveal a topic that is missing, not one that was created again. They may learn to
    tell ids while the changefeed runs, each at a different time.
    """

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing. The first check opens a connection, which `close` releases."""
        self._settings = settings
        self._may_be_missing = settings.options.create_kafka_topics == "auto"
        self._administrator: Administrator | None = None
        self._added: set[str] = set()
        self._unseen: set[str] = set()
        self._ids: dict[str, str] = {}
        self._next = float("-inf")

    def add(self, topics: Collection[str], *, seen: bool = True) -> None:
        """Watch *topics*, which exist or are created on demand, besides those that tables name.

        Without *seen* they had rows before, and may have been deleted while the changefeed did not run.
        """
        self._added.update(topics)
        if not seen:
            self._unseen.update(topics)

    def check(self, *, now: bool = False) -> None:
        """Return when each topic is the one that was seen first, as far as the brokers say. Asks once a second at most.

        With *now* it asks at once. A topic must be missing for a few seconds: brokers learn of a new one at different
        times. Raises: DestinationLostError.
        """
        if time.monotonic() < self._next and not now:
            return
        deadline = time.monotonic() + _SURE_AFTER_S
        while missing := self._missing():
            if time.monotonic() > deadline:
                happened = (
                    "does not exist, although the changefeed has written to it, so its rows are gone"
                    if missing in self._unseen and missing not in self._ids
                    else "was deleted while the changefeed was running, and its rows are gone"
                )
                raise DestinationLostError(
                    f"topic '{missing}' {happened}. Create the topic, then {RUN_AGAIN} to continue without"
                    f" them. {ALL_AGAIN}"
                )
            time.sleep(_ASK_S)
        self._next = time.monotonic() + _EVERY_S

    def explain(self, failure: Failure) -> CdcError | None:
        """Return the error for a *failure* that comes from a topic that was deleted or takes no messages, else None."""
        if failure.no_topic:
            try:
                self.check(now=True)
            except DestinationLostError as error:
                return error
        obstacle = self._connected().obstacle(self._names) if failure.timed_out else ""
        return RetryableSinkError(f"{failure.reason}: {obstacle}") if obstacle else None

    def close(self) -> None:
        """Release the connection."""
        if self._administrator is not None:
            self._administrator.close()
        self._administrator = None

    @property
    def _names(self) -> list[str]:
        return [*self._settings.topic_names, *sorted(self._added)]

    def _connected(self) -> Administrator:
        if self._administrator is None:
            self._administrator = self._settings.administrator()
        return self._administrator

    def _missing(self) -> str | None:
        """Return a topic that does not exist, if any. Raises: DestinationLostError for one that was created again."""
        missing = None
        for topic, found in self._connected().topic_ids(self._names).items():
            if found is None:
                if topic in self._ids or not self._may_be_missing:
                    missing = topic
            elif self._ids.setdefault(topic, found) == NO_ID:
                self._ids[topic] = found
            elif found not in (self._ids[topic], NO_ID):
                raise DestinationLostError(
                    f"topic '{topic}' was deleted and created again while the changefeed was running, and the rows in"
                    f" the old one are gone. {RUN_AGAIN.capitalize()} to continue without them. {ALL_AGAIN}"
                )
        return missing
