"""Runs parts of a sink in processes that die when the last call returns: no `close`, no `finally`, no interpreter exit.

Starting an interpreter takes longer than a whole test, so one process stays ready and forks for each crash.
"""

from __future__ import annotations

import importlib
import os
import signal
import traceback
from collections.abc import Sequence
from typing import Literal

from cdc_conformance.processes import Peer
from cdc_core import ResolvedSink, RowBatch, Sink, SliceInfo, Timestamp
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed

Call = SliceInfo | RowBatch | Timestamp | Literal["flush"]
"""One call: `begin`, `emit` or `flush` of a sink, `emit_resolved` of a resolved sink."""

_LIMIT_S = 60
_FORKING = Peer(PYTHONHASHSEED="random")
"""As on another machine: `hash()` of a text differs from ours."""


def run_and_die(feed: ResolvedChangefeed, calls: Sequence[Call]) -> None:
    """Return when a new process has made *calls* and died at once, without closing anything.

    Raises: AssertionError with the traceback of a call that raised.
    """
    plain = [bytes(call.to_ipc()) if isinstance(call, RowBatch) else call for call in calls]
    status, text = _FORKING.call(_fork_and_die, feed, plain)
    assert status == 0, f"a call failed in the process that must die after its last call (status {status}): {text}"


def make_calls(feed: ResolvedChangefeed, calls: Sequence[Call]) -> Sink | ResolvedSink:
    """Make *calls* and return the part of the sink that they were made of, still open."""
    if isinstance(calls[0], Timestamp):
        resolved_sink = Parts(feed).open_resolved_sink()
        for call in calls:
            assert isinstance(call, Timestamp), f"a resolved sink cannot take {call!r}"
            resolved_sink.emit_resolved(call)
        return resolved_sink
    sink = Parts(feed).open_sink()
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


def _fork_and_die(feed: ResolvedChangefeed, plain: Sequence[Call | bytes]) -> tuple[int, str]:
    """Return how a child of this process ended that made the calls, and the traceback of a call that raised."""
    for part in (feed.encoder.registration.encoder, feed.sink.registration.sink, feed.sink.registration.resolved_sink):
        importlib.import_module(part.partition(":")[0])  # once, and not in each child
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _work_and_die(feed, plain, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def _work_and_die(feed: ResolvedChangefeed, plain: Sequence[Call | bytes], errors: int) -> None:
    signal.alarm(_LIMIT_S)
    try:
        make_calls(feed, [RowBatch.from_ipc(call) if isinstance(call, bytes) else call for call in plain])
    except BaseException:  # the parent reports it
        os.write(errors, traceback.format_exc().encode()[-4000:])
        os._exit(1)
    os._exit(0)
