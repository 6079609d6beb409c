"""A changefeed without Spark as a process that a test can kill: the engine's own parts, called in turn.

`python -m cdc_testing.local_feed DIRECTORY` runs what `feed.json` in DIRECTORY says, with DIRECTORY as its state: until
SIGTERM, or with `--once` until all that is committed by now is resolved.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import clock
from cdc_testing.runs import LIMIT_S, eventually

from cdc_core.errors import RetryableError

__all__ = ["LocalFeed"]


class LocalFeed:
    """As `cdc_testing.runs.Feed`, of one process and quick to start."""

    def __init__(
        self, directory: Path, source: str, tables: Sequence[str], *, options: Mapping[str, object], sink: str
    ) -> None:
        self.directory = directory
        self.state = directory
        self.log_path = directory / "run.log"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        told = {"source": source, "sink": sink, "tables": list(tables), "options": dict(options)}
        (directory / "feed.json").write_text(json.dumps(told))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def start(self, *arguments: str) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cdc_testing.local_feed", str(self.directory), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """SIGKILL the process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self, condition: Callable[[], bool]) -> bool:
        """Stop the process where it is and return True, if *condition* holds then; else let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if condition():
            return True
        self.process.send_signal(signal.SIGCONT)
        return False

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self._succeeds()

    def once(self) -> None:
        self.start("--once")
        self._succeeds()

    def until(self, what: str, condition: Callable[[], bool], *, limit_s: float = LIMIT_S) -> None:
        """Return as soon as *condition* holds while the run is alive."""

        def holds() -> bool:
            met = condition()
            assert self.process is not None
            assert met or self.process.poll() is None, f"the run ended before {what}\n{self.log()[-3000:]}"
            return met

        eventually(what, holds, limit_s=limit_s)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _succeeds(self) -> None:
        assert self.process is not None
        status = self.process.wait(LIMIT_S)
        assert status == 0, f"the run ended with status {status}\n{self.log()[-3000:]}"


def main(directory: Path, *, once: bool) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    told = json.loads((directory / "feed.json").read_text())
    feed = resolved_feed(told["source"], told["sink"], *told["tables"], options=told["options"], name="test")
    until = clock(told["source"]) if once else None
    engine = LocalEngine(feed, directory)
    running = False
    while not stopped.is_set():
        try:
            if not running:
                engine.run()
                running = True
            if not engine.step():
                stopped.wait(0.01)
            if until is not None and engine.high_water >= until:
                break
        except RetryableError as error:
            logging.warning("the run begins anew: %s", error)
            running = False
            stopped.wait(0.1)
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), once="--once" in sys.argv))
