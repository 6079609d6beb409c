"""How warnings of the planner's process get into the driver's log, where a person looks for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.masking import mask

__all__ = ["PlannerWarnings", "keep_warnings", "pass_warning"]

log = logging.getLogger(__name__)

_FILE = "planner-warnings"
_NOT_REPEATED = ("py4j", "pyspark", __name__)


class _Keeper(logging.Handler):
    """Writes each warning as one line."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(logging.WARNING)
        self._path = run_dir / _FILE

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_NOT_REPEATED):
            return
        pass_warning(self._path.parent, record.getMessage())


def pass_warning(run_dir: Path, text: str) -> None:
    """Have *text* logged as a warning by `PlannerWarnings`, as one line. For processes on the driver's host."""
    # Without the directory the attempt is over.
    with suppress(OSError), (run_dir / _FILE).open("a", encoding="utf-8") as file:
        file.write(" ".join(text.split()) + "\n")


@contextmanager
def keep_warnings(run_dir: Path) -> Iterator[None]:
    """Write what this process warns of in the block to where `PlannerWarnings` reads it. Planner."""
    keeper = _Keeper(run_dir)
    root = logging.getLogger()
    root.addHandler(keeper)
    try:
        yield
    finally:
        root.removeHandler(keeper)


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
