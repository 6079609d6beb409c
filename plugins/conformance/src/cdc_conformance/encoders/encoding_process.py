"""Encoding in another process, in which hashes, the day, the time zone and the locale are others, as on a worker."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from typing import Any, BinaryIO

from cdc_conformance.processes import command, environment
from cdc_core import RowBatch
from cdc_core.config.resolved import Job

__all__ = ["pairs_elsewhere", "serve"]

_PROGRAM = "from cdc_conformance.encoders.elsewhere import serve; serve()"
_OTHERWISE = {"PYTHONHASHSEED": "4711", "TZ": "Pacific/Chatham", "LC_ALL": "C", "PYTHONUTF8": "0"}


def pairs_elsewhere(job: Job, rows: RowBatch, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values that the encoder of *job* makes of *rows* in another process."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump((job, bytes(rows.to_ipc()), topic), process.stdin)
    process.stdin.flush()
    found, failed = pickle.load(process.stdout)
    assert not failed, f"in another process, encoding fails:\n{failed}"
    pairs: list[tuple[bytes, bytes | None]] = found
    return pairs


def serve() -> None:
    """Answer what `pairs_elsewhere` asks until its process ends."""
    time.time = partial(_later, time.time)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an encoder prints is no answer
    while (answer := _answer(sys.stdin.buffer)) is not None:
        pickle.dump(answer, answers)
        answers.flush()


def _later(now: Callable[[], float]) -> float:
    return now() + 86_400


def _answer(questions: BinaryIO) -> tuple[Any, str] | None:
    try:
        job, rows, topic = pickle.load(questions)
    except EOFError:
        return None
    try:
        batch = job.open_encoder().encode(RowBatch.from_ipc(rows), topic=topic)
        return list(zip(batch.key.to_pylist(), batch.value.to_pylist(), strict=True)), ""
    except Exception:  # whatever a stranger's encoder does
        return None, traceback.format_exc()


@cache
def _process() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command("-c", _PROGRAM),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(**_OTHERWISE),
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.stdin and process.stdin.close()
