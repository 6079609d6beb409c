"""How warnings of the planner's process get into the driver's log, where a person looks for them."""

from __future__ import annotations

import logging
from pathlib import Path

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.masking import mask

__all__ = ["PlannerWarnings", "keep_warnings"]

log = logging.getLogger(__name__)

_FILE = "planner-warnings"
_NOT_REPEATED = ("py4j", "pyspark", __name__)


class _Keeper(logging.FileHandler):
    """Writes each warning as one line."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir / _FILE, encoding="utf-8")
        self.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(_NOT_REPEATED):
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(record.getMessage().split())


def keep_warnings(run_dir: Path) -> None:
    """Write what this process warns of from now on where `PlannerWarnings` reads it. Planner, once in an attempt."""
    logging.getLogger().addHandler(_Keeper(run_dir))


class PlannerWarnings:
    """Repeats the warnings of the planner of *feed*, in the attempt in *run_dir*, in the log of this process."""

    def __init__(self, feed: ResolvedChangefeed, run_dir: Path) -> None:
        self._path = run_dir / _FILE
        self._name = feed.name
        self._secrets = feed.secrets()
        self._read = 0

    def repeat(self) -> None:
        """Log what is new since the last call. Cheap."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._read += len(whole) + len(newline)
        for line in whole.decode(errors="replace").splitlines():
            log.warning("changefeed '%s': %s", self._name, mask(line, self._secrets))
