"""Runs parts of a sink in processes that die when the last call returns: no `close`, no `finally`, no interpreter exit.

Starting an interpreter takes longer than a whole test, so one process stays ready and forks for each crash.
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
from cdc_core import ResolvedSink, RowBatch, Sink, SliceInfo, Timestamp
from cdc_core.config.resolved import ResolvedChangefeed

__all__ = ["Call", "make_calls", "run_and_die"]

Call = SliceInfo | RowBatch | Timestamp | Literal["flush"]
"""One call: `begin`, `emit` or `flush` of a sink, `emit_resolved` of a resolved sink."""

_LIMIT_S = 60


def run_and_die(feed: ResolvedChangefeed, calls: Sequence[Call]) -> None:
    """Return when a new process has made *calls* and died at once, without closing anything.

    Raises: AssertionError with the traceback of a call that raised.
    """
    plain = [_Rows(bytes(call.to_ipc())) if isinstance(call, RowBatch) else call for call in calls]
    status, text = _fork_server().run(pickle.dumps((sys.path, pickle.dumps((feed, plain)))))
    assert status == 0, f"a call failed in the process that was to die after its last call (status {status}): {text}"


def make_calls(feed: ResolvedChangefeed, calls: Sequence[Call]) -> Sink | ResolvedSink:
    """Make *calls* and return the part of the sink that they were made of, still open."""
    if isinstance(calls[0], Timestamp):
        resolved_sink = feed.open_resolved_sink()
        for call in calls:
            assert isinstance(call, Timestamp), f"a resolved sink cannot take {call!r}"
            resolved_sink.emit_resolved(call)
        return resolved_sink
    sink = feed.open_sink()
    for call in calls:
        match call:
            case RowBatch():
                sink.emit(call)
            case SliceInfo():
                sink.begin(call)
            case "flush":
                sink.flush()
            case _:
                raise AssertionError(f"a sink cannot take {call!r}")
    return sink


@dataclass(frozen=True, slots=True)
class _Rows:
    """A batch in a form that can be pickled."""

    ipc: bytes


class _ForkServer:
    """The process that forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command("-c", f"from {__name__} import _serve; _serve()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(PYTHONHASHSEED="random"),  # as on another machine: `hash()` of a text differs from ours
        )
        atexit.register(self._process.communicate)

    def run(self, request: bytes) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, request)
        answer = _receive(self._process.stdout)
        assert answer, "the process that forks has died; see its standard error"
        status, text = pickle.loads(answer)
        return status, text


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


def _serve() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not write into the answers
    while request := _receive(requests):
        sys.path[:], work = pickle.loads(request)
        with contextlib.suppress(Exception):  # the child reports what is wrong
            feed, _ = pickle.loads(work)
            parts = feed.encoder.registration.encoder, feed.sink.registration.sink, feed.sink.registration.resolved_sink
            for part in parts:
                importlib.import_module(part.partition(":")[0])
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _work_and_die(work, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        _send(answers, pickle.dumps((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text)))


def _work_and_die(work: bytes, errors: int) -> None:
    signal.alarm(_LIMIT_S)
    try:
        feed, plain = pickle.loads(work)
        make_calls(feed, [RowBatch.from_ipc(call.ipc) if isinstance(call, _Rows) else call for call in plain])
    except BaseException:  # the parent reports it
        os.write(errors, traceback.format_exc().encode()[-4000:])
        os._exit(1)
    os._exit(0)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "big") + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """Return the next message, empty at the end."""
    return pipe.read(int.from_bytes(pipe.read(8), "big"))
