"""Processes that have started Spark before there is a job for them: it takes over what runs across the nodes sooner."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from cdc_core.engine.process_session import reap
from cdc_core.jobs.cluster import installed
from cdc_core.jobs.settings import NodeSettings
from cdc_core.spark.log_file import open_log
from cdc_core.spark.standalone import is_of_nodes

log = logging.getLogger(__name__)

_PREFIX = "spare-"
_CALM_S = 30.0
"""How long after the last job has begun a spare does: it takes seconds of processor time, which the job needs first."""
_AGAIN_S = 60.0
"""How long after the end of one that failed."""
_OF_A_SESSION = (
    "master",
    "spark.authenticate",
    "spark.blockManager.port",
    "spark.cdc.",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.host",
    "spark.driver.port",
    "spark.executor",
    "spark.network.",
    "spark.scheduler.",
    "spark.sql.",
    "spark.task.",
)
"""How settings begin that count for a session in a JVM that runs already. Memory or packages, for example, do not."""


class Spare:
    """A child process as `SubprocessRun` starts one, which waits for its job. Its files are in a directory of *home*.

    It ends when its node does, and holds nothing of a job. Raises: OSError.
    """

    def __init__(self, home: Path) -> None:
        self.versions = installed()
        self._directory = Path(mkdtemp(prefix=_PREFIX, dir=home))
        self._log_path = self._directory / "spark.log"
        self._ready = self._directory / "ready"
        with open_log(self._log_path) as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cdc_core.jobs.subprocess_main", str(self._ready)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether it has not ended. It is not reaped: its number must not become another's before `end`."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def is_ready(self) -> bool:
        return self._ready.exists() and self.is_running

    def log_to(self, path: Path) -> None:
        """Have all that its processes print go to *path*, after what is there. They keep the file open."""
        with suppress(OSError), open_log(self._log_path) as log:
            if path.exists():
                with path.open("rb") as before:
                    shutil.copyfileobj(before, log)
            self._log_path.replace(path)

    def end(self) -> None:
        """End it with all that it has started, and return then."""
        reap(self.process)
        self.remove()

    def remove(self) -> None:
        """Remove its files. It has ended."""
        shutil.rmtree(self._directory, ignore_errors=True)


class Spares:
    """The spares of the node with *settings*. Used by its thread."""

    def __init__(self, settings: NodeSettings) -> None:
        self._home = settings.home
        self._name = settings.name
        self._count = settings.spares if settings.cores else 0
        self._waiting: list[Spare] = []
        self._not_before = 0.0

    def remove_left(self) -> None:
        """Remove what an earlier node with this directory has left. It has ended."""
        for left in self._home.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)

    def keep(self, *, calm: bool) -> None:
        """Begin a spare if one is missing, some time after the last failure, and after the node has become *calm*.

        Called at each poll of the node.
        """
        now = time.monotonic()
        if not calm:
            self._not_before = max(self._not_before, now + _CALM_S)
        for spare in [spare for spare in self._waiting if not spare.is_running]:
            self._waiting.remove(spare)
            spare.end()
            self._failed(f"ended with status {spare.process.returncode}")
        if len(self._waiting) < self._count and now >= self._not_before:
            try:
                self._waiting.append(Spare(self._home))
            except OSError as error:
                self._failed(f"could not be started: {error}")

    def take(self, spark: Mapping[str, str]) -> Spare | None:
        """Return a spare that fits a job with the settings *spark*, None if there is none. The caller ends it.

        Called when a job begins. Spares that are not ready yet, or have loaded other versions than there are now, end.
        """
        if not (is_of_nodes(spark) and all(key.startswith(_OF_A_SESSION) for key in spark)):
            return None
        versions = installed() if self._waiting else {}
        ready = [spare for spare in self._waiting if spare.is_ready and spare.versions == versions]
        for spare in self._waiting:
            if spare not in ready:
                spare.end()
        self._waiting = ready[1:]
        return ready[0] if ready else None

    def end(self) -> None:
        """End all of them."""
        for spare in self._waiting:
            spare.end()
        self._waiting = []

    def _failed(self, how: str) -> None:
        log.warning("node '%s': a spare process %s; jobs start without one", self._name, how)
        self._not_before = time.monotonic() + _AGAIN_S
