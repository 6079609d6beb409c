"""Sinks in processes that die the moment their last call returns: no `close`, no `finally`, no end of the interpreter.

One process stays ready and forks for each crash, because starting an interpreter takes longer than all of a test.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import IO, Literal

from cdc_conformance.processes import command, environment
from cdc_core import RowBatch, Sink, SliceInfo, Timestamp
from cdc_core.config.resolved import Job

__all__ = ["Call", "make_calls", "run_and_die"]

Call = SliceInfo | RowBatch | Timestamp | Literal["flush"]
"""One call of a sink: `begin`, `emit`, `emit_resolved`, `flush`."""

_LIMIT_S = 60


def run_and_die(job: Job, calls: Sequence[Call]) -> None:
    """Return when a process has opened the job's sink, made *calls*, and died at once without cleaning up.

    Raises: AssertionError with the traceback of a call that raised.
    """
    plain = [_Rows(bytes(call.to_ipc())) if isinstance(call, RowBatch) else call for call in calls]
    status, text = _nursery().run(pickle.dumps((sys.path, pickle.dumps((job, plain)))))
    assert status == 0, f"the process that was to die after its last call failed earlier ({status}): {text}"


def make_calls(sink: Sink, calls: Sequence[Call]) -> None:
    """Make *calls* of *sink*, one after the other."""
    for call in calls:
        match call:
            case RowBatch():
                sink.emit(call)
            case SliceInfo():
                sink.begin(call)
            case Timestamp():
                sink.emit_resolved(call)
            case "flush":
                sink.flush()


@dataclass(frozen=True, slots=True)
class _Rows:
    """A batch on its way to another process."""

    ipc: bytes


class _Nursery:
    """The process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command("-c", f"from {__name__} import _serve; _serve()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(PYTHONHASHSEED="random"),  # as on another machine: `hash()` of a text is not ours
        )
        atexit.register(self._end)

    def run(self, request: bytes) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, request)
        answer = _receive(self._process.stdout)
        assert answer, "the process that lets others die has died itself; its standard error says why"
        status, text = pickle.loads(answer)
        return status, text

    def _end(self) -> None:
        self._process.communicate()


@cache
def _nursery() -> _Nursery:
    return _Nursery()


def _serve() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not talk to the other side
    while request := _receive(requests):
        sys.path[:], work = pickle.loads(request)
        with contextlib.suppress(Exception):  # the child will say what is wrong
            job, _ = pickle.loads(work)
            for component in (job.encoder, job.sink):
                importlib.import_module(component.target.partition(":")[0])
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _live_and_die(work, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        _send(answers, pickle.dumps((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text)))


def _live_and_die(work: bytes, complaints: int) -> None:
    signal.alarm(_LIMIT_S)
    try:
        job, plain = pickle.loads(work)
        calls = [RowBatch.from_ipc(call.ipc) if isinstance(call, _Rows) else call for call in plain]
        make_calls(job.open_sink(), calls)
    except BaseException:  # the parent tells of it
        os.write(complaints, traceback.format_exc().encode()[-4000:])
        os._exit(1)
    os._exit(0)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "big") + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """Return the next message, empty at the end."""
    return pipe.read(int.from_bytes(pipe.read(8), "big"))
