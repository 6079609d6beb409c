"""What planner, coordinator and source warn of gets into the driver's log, where a person looks for it."""

from __future__ import annotations

import logging

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_channel import AttemptChannel
from cdc_core.masking import mask

__all__ = ["AttemptLog"]

log = logging.getLogger(__name__)


class AttemptLog:
    """Logs for the driver what comes through *channel* from the attempt of *feed*."""

    def __init__(self, feed: ResolvedChangefeed, channel: AttemptChannel) -> None:
        self._channel = channel
        self._name, self._source = feed.name, feed.rangefeed.owner
        self._secrets = feed.secrets()
        self._logged: str | None = None

    def repeat_warnings(self) -> None:
        """Log what is new since the last call. Cheap."""
        for line in self._channel.warnings():
            log.warning("changefeed '%s': %s", self._name, mask(line, self._secrets))

    def source_warning(self) -> str | None:
        """Return what the source warns of now, masked. Logs when that begins, changes and ends."""
        told = self._channel.source_warning()
        text = None if told is None else mask(told, self._secrets)
        if text != self._logged:
            if text is None:
                log.info("changefeed '%s': %s: no longer: %s", self._name, self._source, self._logged)
            else:
                log.warning("changefeed '%s': %s: %s", self._name, self._source, text)
            self._logged = text
        return text
