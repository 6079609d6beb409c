"""How a notice of the source's history gets from the coordinator to the driver, and into its log."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.masking import mask

__all__ = ["NoticeFile", "NoticeLog"]

log = logging.getLogger(__name__)


class NoticeFile:
    """A small file in the directory of an attempt, by which its coordinator tells the driver what the source says."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "notice"
        self._shown: str | None = None
        self._new = True

    def show(self, text: str | None) -> None:
        """Tell the driver *text*; None takes back what this or another process told before."""
        if text == self._shown and not self._new:
            return
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(text or "", encoding="utf-8")
        written.replace(self._path)
        self._shown, self._new = text, False

    def look(self) -> str | None:
        """Return what was told last, None for nothing."""
        try:
            return self._path.read_text(encoding="utf-8") or None
        except FileNotFoundError:
            return None


class NoticeLog:
    """Logs what the source of *feed* says in the attempt in *run_dir*: when that begins, changes and ends."""

    def __init__(self, feed: ResolvedChangefeed, run_dir: Path) -> None:
        self._file = NoticeFile(run_dir)
        self._where = f"changefeed '{feed.name}': {feed.rangefeed.owner}"
        self._secrets = feed.secrets()
        self._said: str | None = None

    def look(self) -> str | None:
        """Return what the source says now, masked."""
        told = self._file.look()
        text = None if told is None else mask(told, self._secrets)
        if text != self._said:
            if text is None:
                log.info("%s: no longer: %s", self._where, self._said)
            else:
                log.warning("%s: %s", self._where, text)
            self._said = text
        return text
