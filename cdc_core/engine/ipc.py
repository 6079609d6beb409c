"""What a node and a child process say to each other: lines of JSON, through pipes that no other process has.

To the child: one `job` first, then `until` (the end of its lease, on the clock of `lease_clock`) and `order` ("stop",
"abandon"), in any order. From the child: `log` (level, logger, text, event, details), `status` with `begun`, and one
`outcome` last.
"""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

from cdc_core.engine.error_text import one_line
from cdc_core.engine.supervisor import Outcome
from cdc_core.errors import CdcError, from_wire, to_wire
from cdc_core.masking import mask

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

POLL_INTERVAL_S = 0.5
"""How often both sides look whether the lease is over. A longer wait would not count the time that a host sleeps."""


def lease_clock() -> float:
    """Return the time in seconds on a clock that all processes of this host share.

    It continues while a process is stopped, and on Linux while the host sleeps.
    """
    return time.clock_gettime(_CLOCK)


def line(**values: Any) -> bytes:
    return json.dumps(values).encode() + b"\n"


def read_lines(pipe: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what the lines of *pipe* say until its end, each as soon as it is whole."""
    for text in pipe:
        if text.endswith(b"\n"):
            yield json.loads(text)


def packed(value: object) -> str:
    """Return what a line has of a *value* that only pickles, for a process of the same installation."""
    return base64.b64encode(pickle.dumps(value)).decode()


def unpacked(text: str) -> Any:
    """Return what `packed` was given."""
    return pickle.loads(base64.b64decode(text))


def outcome_values(outcome: Outcome, secrets: frozenset[str]) -> dict[str, Any]:
    """Return *outcome* as JSON values, without *secrets*."""
    error = outcome.error
    if error is None:
        text = None
    elif isinstance(error, CdcError):
        error.args = tuple(mask(str(argument), secrets) for argument in error.args)
        text = to_wire(error)
    else:
        text = mask(one_line(error), secrets)
    return {"outcome": outcome.kind, "error": text}


def outcome_of(values: Mapping[str, Any]) -> Outcome:
    """Return what `outcome_values` was given. An error that is not a CdcError becomes a RuntimeError with its text."""
    text = values["error"]
    return Outcome(values["outcome"], None if text is None else from_wire(text) or RuntimeError(text))
