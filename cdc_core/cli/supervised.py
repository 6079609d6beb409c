"""Changefeeds in the foreground of a command: their statuses, signals, and the exit status."""

from __future__ import annotations

import logging
import queue
from collections.abc import Sequence

from cdc_core.cli.stop_signals import stop_signals
from cdc_core.engine.supervisor import Outcome, Supervisor
from cdc_core.errors import CdcError
from cdc_core.telemetry.status import StatusView, shown_moment

log = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.1
_STOPPED = ("stopped", "abandoned", "given up")
_EXIT_STATUS = {"complete": 0, "stopped": 0, "given up": 1, "abandoned": 130}


def supervise(supervisors: Sequence[Supervisor], view: StatusView, *, debug: bool = False) -> int:
    """Start the runs, show their statuses until all have ended, and return the exit status: the greatest of them.

    STOP_SIGNALS stop all runs; a second one abandons their running steps. Main thread only. Raises: the error
    of a changefeed that runs alone. One among several is logged when it fails, with a traceback if *debug*, and the
    others continue.
    """
    running = list(supervisors)
    obeyed, told = 0, queue.SimpleQueue[None]()
    with stop_signals(lambda: told.put(None)):
        for supervisor in supervisors:
            supervisor.start()
        while running:
            running[0].wait(_POLL_INTERVAL_S)
            while obeyed < told.qsize():
                for supervisor in running:
                    supervisor.abandon() if obeyed else supervisor.stop()
                obeyed += 1
            ended = [supervisor for supervisor in running if supervisor.outcome is not None]
            for supervisor in running:
                view(supervisor.status)
            for supervisor in ended:
                running.remove(supervisor)
                _tell_place(supervisor)
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
    log.error("changefeed '%s' failed: %s", name, text, exc_info=error if debug else None, extra={"changefeed": name})


def _tell_place(supervisor: Supervisor) -> None:
    """Log where the next run of a changefeed that was stopped begins."""
    name, status, outcome = supervisor.feed.name, supervisor.status, supervisor.outcome
    if outcome is None or outcome.kind not in _STOPPED:
        return
    if status.high_water:
        moment = shown_moment(status.high_water.to_datetime())
        place = f"continues after {moment} ({status.high_water})"
    elif status.scan is not None:
        place = f"continues the scan at {status.scan.done:,} of {status.scan.total:,} {status.scan.unit}"
    else:
        place = "begins where this one began"
    again = "" if outcome.kind == "stopped" else ", and repeats what was delivered later"
    log.info("changefeed '%s': the next run %s%s", name, place, again, extra={"changefeed": name})


def _exit_status(outcome: Outcome) -> int:
    if outcome.kind != "failed":
        return _EXIT_STATUS[outcome.kind]
    return outcome.error.exit_status if isinstance(outcome.error, CdcError) else 1
