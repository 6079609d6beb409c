"""Encodes in another process, as on a worker, with another hash seed, date, time zone and locale."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from typing import Any, BinaryIO

from cdc_conformance.encoders.changefeeds import open_encoder
from cdc_conformance.processes import command, environment
from cdc_core import RowBatch
from cdc_core.config.resolved import ResolvedChangefeed

__all__ = ["pairs_of_other_process", "serve"]

_PROGRAM = "from cdc_conformance.encoders.encoding_process import serve; serve()"
_ENVIRONMENT = {"PYTHONHASHSEED": "4711", "TZ": "Pacific/Chatham", "LC_ALL": "C", "PYTHONUTF8": "0"}


def pairs_of_other_process(feed: ResolvedChangefeed, rows: RowBatch, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of *rows* that the encoder of *feed* writes in another process."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(pickle.dumps((feed, bytes(rows.to_ipc()), topic)), process.stdin)
        process.stdin.flush()
        found, failure = pickle.load(process.stdout)
    except (EOFError, BrokenPipeError):
        _process.cache_clear()
        raise AssertionError(f"the other process ended with exit code {process.wait()}; see its stderr") from None
    assert not failure, f"encoding fails in another process:\n{failure}"
    pairs: list[tuple[bytes, bytes | None]] = found
    return pairs


def serve() -> None:
    """Answer requests of `pairs_of_other_process` until the process ends."""
    time.time = partial(_later, time.time)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # What an encoder prints is not an answer.
    while (answer := _answer(sys.stdin.buffer)) is not None:
        pickle.dump(answer, answers)
        answers.flush()


def _later(now: Callable[[], float]) -> float:
    return now() + 86_400


def _answer(requests: BinaryIO) -> tuple[Any, str] | None:
    try:
        request = pickle.load(requests)
    except EOFError:
        return None
    try:
        feed, rows, topic = pickle.loads(request)  # Imports the plugin's classes.
        batch = open_encoder(feed).encode(RowBatch.from_ipc(rows), topic=topic)
        return list(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True)), ""
    except Exception:  # A plugin may raise anything.
        return None, traceback.format_exc()


@cache
def _process() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command("-c", _PROGRAM),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(**_ENVIRONMENT),
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError), process:  # Closes stdin and waits.
        pass
