"""Another process that reads slices, as executors are: it knows nothing but a job and a pickled slice."""

from __future__ import annotations

import atexit
import functools
import pickle
import subprocess
import sys
from typing import Any

from cdc_conformance.processes import command, environment
from cdc_core import Mark, RowBatch
from cdc_core.config.resolved import Job

__all__ = ["Elsewhere"]


class Elsewhere:
    """The process; `shared` starts it when it is first needed, and it ends with this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command("-m", "cdc_conformance.rangefeeds.elsewhere"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    @classmethod
    @functools.cache
    def shared(cls) -> Elsewhere:
        elsewhere = cls()
        atexit.register(elsewhere.close)
        return elsewhere

    def read(self, job: Job, pickled: bytes) -> list[RowBatch | Mark]:
        """Return what the slice yields there. Raises: whatever reading it raised, as a RuntimeError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((job, pickled), self._process.stdin)
        self._process.stdin.flush()
        items, error = pickle.load(self._process.stdout)
        if error:
            raise RuntimeError(f"reading the slice in another process failed: {error}")
        found: list[RowBatch | Mark] = items
        return found

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


def _serve() -> None:
    while True:
        try:
            job, pickled = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_answer(job, pickled), sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _answer(job: Job, pickled: bytes) -> tuple[list[Any], str]:
    try:
        rangefeed = job.open_rangefeed(parallelism=2)
        try:
            return list(rangefeed.read(pickle.loads(pickled))), ""
        finally:
            rangefeed.close()
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    _serve()
