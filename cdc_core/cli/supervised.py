"""Changefeeds in the foreground of a command: their statuses, signals, and the exit status."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from cdc_core.engine.supervisor import Outcome, Supervisor
from cdc_core.errors import CdcError
from cdc_core.telemetry.status import StatusView

__all__ = ["supervise"]

log = logging.getLogger(__name__)

_LOOK_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_STATUS = {"complete": 0, "stopped": 0, "given up": 1, "abandoned": 130}


def supervise(supervisors: Sequence[Supervisor], view: StatusView, *, debug: bool = False) -> int:
    """Start the runs, show their statuses until all have ended, and return the exit status: the greatest of them.

    SIGINT and SIGTERM stop all runs; a second signal abandons their running steps. Main thread only. Raises: the error
    of a changefeed that runs alone. One among several is logged when it fails, with a traceback if *debug*, and the
    others continue.
    """
    running = list(supervisors)
    obeyed = 0
    with _signals() as told:
        for supervisor in supervisors:
            supervisor.start()
        while running:
            running[0].wait(_LOOK_S)
            while obeyed < len(told):
                for supervisor in running:
                    supervisor.abandon() if obeyed else supervisor.stop()
                obeyed += 1
            ended = [supervisor for supervisor in running if supervisor.outcome is not None]
            for supervisor in running:
                view(supervisor.status)
            for supervisor in ended:
                running.remove(supervisor)
                if len(supervisors) > 1:
                    _tell(supervisor, debug=debug)
    outcomes = [outcome for supervisor in supervisors if (outcome := supervisor.outcome) is not None]
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    return max(map(_exit_status, outcomes))


def _tell(supervisor: Supervisor, *, debug: bool) -> None:
    """Log why a changefeed ended that is not the only one."""
    name, outcome = supervisor.feed.name, supervisor.outcome
    if outcome is None or outcome.error is None:
        return
    error = outcome.error
    text = str(error) if isinstance(error, CdcError) else f"internal error: {type(error).__name__}: {error}"
    log.error("changefeed '%s' failed: %s", name, text, exc_info=error if debug else None)


def _exit_status(outcome: Outcome) -> int:
    if outcome.kind != "failed":
        return _EXIT_STATUS[outcome.kind]
    return outcome.error.exit_status if isinstance(outcome.error, CdcError) else 1


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list to which SIGINT and SIGTERM are added as they come."""
    told: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        told.append(number)

    saved = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield told
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
