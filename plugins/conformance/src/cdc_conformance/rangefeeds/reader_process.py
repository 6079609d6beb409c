"""A process that reads slices as an executor does: it has only a changefeed and a pickled slice."""

from __future__ import annotations

import atexit
import functools
import pickle
import subprocess
import sys
from contextlib import closing
from typing import Any

from cdc_conformance.processes import command, environment
from cdc_core import RowBatch, SpanMark
from cdc_core.config.resolved import ResolvedChangefeed

__all__ = ["ReaderProcess"]


class ReaderProcess:
    """Another process. `shared` starts one on first use, and it ends with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command("-m", "cdc_conformance.rangefeeds.reader_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    @classmethod
    @functools.cache
    def shared(cls) -> ReaderProcess:
        process = cls()
        atexit.register(process.close)
        return process

    def read(self, changefeed: ResolvedChangefeed, pickled: bytes) -> list[RowBatch | SpanMark]:
        """Return what a reader of *changefeed* yields there for the slice. Raises: RuntimeError when the read fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((changefeed, pickled), self._process.stdin)
        self._process.stdin.flush()
        items, error = pickle.load(self._process.stdout)
        if error:
            raise RuntimeError(f"another process failed to read the slice: {error}")
        found: list[RowBatch | SpanMark] = items
        return found

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


def _serve() -> None:
    while True:
        try:
            changefeed, pickled = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_answer(changefeed, pickled), sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _answer(changefeed: ResolvedChangefeed, pickled: bytes) -> tuple[list[Any], str]:
    try:
        with closing(changefeed.open_reader()) as reader:
            return list(reader.read(pickle.loads(pickled))), ""
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    _serve()
