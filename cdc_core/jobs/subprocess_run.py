"""One changefeed as a process of its own, for a node whose Spark session does not suit it."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.ipc import POLL_INTERVAL_S, lease_clock, line, outcome_of, packed, read_lines, unpacked
from cdc_core.engine.process_session import kill_session, reap
from cdc_core.engine.supervisor import Outcome
from cdc_core.errors import RetryableError
from cdc_core.jobs.spares import Spare
from cdc_core.spark.log_file import open_log
from cdc_core.telemetry.logs import logged_as
from cdc_core.telemetry.status import Status

_ABANDON_LIMIT_S = 60.0


class SubprocessLostError(RetryableError):
    """The process of a changefeed ended before its run did. What it has saved is saved; another run continues."""


class SubprocessRun:
    """Runs one changefeed in a child process with a Spark session of its own. Used as a `Supervisor`, from any thread.

    The child may run until the moment *until* on the clock of `lease_clock`, and for longer after `extend`. If it does
    not hear in time that it may, or this process ends, it kills itself and everything that it has started; this process
    does the same to it. A child that was told to abandon the step has a minute. *run* are the other keywords of
    `Supervisor`, such as `job_epoch`; *store* is the URL of the progress store. *on_end* is called, in any thread, when
    there is an `outcome`. With a *spare* that is the child.

    The child gets all of this, secrets included, through a pipe: its command line shows nothing, and its environment is
    that of this process. What it logs is logged here, under the same names. What Spark, libraries and Python itself
    print goes to `NAME.spark.log` in *state_dir*.
    """

    def __init__(
        self,
        feed: ResolvedChangefeed,
        *,
        store: str,
        state_dir: Path,
        until: float,
        spare: Spare | None = None,
        on_end: Callable[[], None] = lambda: None,
        **run: Any,
    ) -> None:
        self.feed = feed
        self._on_end = on_end
        self._log_path = state_dir.absolute() / f"{feed.name}.spark.log"
        self._status = Status(changefeed=feed.name, phase="starting", log_name=self._log_path.name)
        self._begun = False
        self._until = until
        self._abandon_until = float("inf")
        level = logging.getLogger("cdc_core").getEffectiveLevel()
        job = {"feed": packed(feed), "store": store, "state_dir": str(state_dir.absolute()), "level": level}
        self._to_send: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._to_send.put(line(until=until, job={**job, "run": run}))
        self._said: queue.SimpleQueue[Outcome | Exception | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._reason = ""
        self._spare = spare
        self._process: subprocess.Popen[bytes] | None = None if spare is None else spare.process
        self._outcome: Outcome | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"process of changefeed {feed.name}", daemon=True)

    def start(self) -> None:
        """Start the process and return at once. Called once."""
        self._thread.start()

    def extend(self, until: float) -> None:
        """Let the child run until that moment. Called after each renewal of the node's session; returns at once."""
        if until != self._until:
            self._until = until
            self._to_send.put(line(until=until))

    def stop(self) -> None:
        """Have the running step end and be saved, then end the run. Return at once; do nothing after the end."""
        self._to_send.put(line(order="stop"))

    def abandon(self) -> None:
        """End the run without waiting for the running step, which the next run repeats. Return at once."""
        self._abandon_until = min(self._abandon_until, lease_clock() + _ABANDON_LIMIT_S)
        self._to_send.put(line(order="abandon"))

    def kill(self) -> None:
        """Kill the process and everything that it has started. Return when they have ended; do nothing after that."""
        self._kill("was killed")

    @property
    def status(self) -> Status:
        """The state of the run, at most some seconds old. Holds no secret."""
        return self._status

    @property
    def has_begun(self) -> bool:
        """Whether the run has read from its source: an error before that is one of its set-up."""
        return self._begun

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, None before: then no process of it is alive on this host.

        If the process ended without saying, the outcome is "failed" with a SubprocessLostError.
        """
        return self._outcome

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """Return the outcome as soon as the run has ended; None when it has not within *timeout_s*.

        Return None at once before the start.
        """
        if self._thread.ident is not None:
            self._ended.wait(timeout_s)
        return self._outcome

    def _work(self) -> None:
        said: Outcome | None = None
        status: int | None = None
        try:
            with logged_as(self.feed.name):
                self._start()
                said = self._follow()
        except Exception as error:
            self._reason = f"could not be started: {error}" if self._process is None else f"was killed for {error!r}"
        finally:
            status = self._reap()
        with self._lock:
            self._outcome = said or Outcome("failed", self._lost(status))
        self._to_send.put(b"")  # ends `_write`
        self._ended.set()
        self._on_end()

    def _start(self) -> None:
        if self._spare is not None:
            self._spare.log_to(self._log_path)
            return
        with self._lock, open_log(self._log_path) as log:
            if self._reason:
                return
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cdc_core.jobs.subprocess_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at a terminal is for the node; and see `kill_session`
            )

    def _follow(self) -> Outcome | None:
        """Pass lines on until the child has told its outcome, and return that; None when it ended before."""
        process = self._process
        if process is None:  # killed before it was started
            return None
        for work in (self._write, self._read):
            threading.Thread(target=copy_context().run, args=[work, process], daemon=True).start()
        while True:
            left_s = min(self._until, self._abandon_until) - lease_clock()
            if left_s <= 0:
                late = self._abandon_until < self._until
                self._kill("did not abandon its step in time" if late else "had lost the lease of its node")
                return None
            with suppress(queue.Empty):
                said = self._said.get(timeout=min(left_s, POLL_INTERVAL_S))
                if isinstance(said, Exception):
                    raise said
                return said

    def _write(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended, as its other pipe will say
            for content in iter(self._to_send.get, b""):
                process.stdin.write(content)
                process.stdin.flush()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        said: Outcome | Exception | None = None
        try:
            said = next(filter(None, map(self._take, read_lines(process.stdout))), None)
        except Exception as error:
            said = error
        self._said.put(said)

    def _take(self, values: dict[str, Any]) -> Outcome | None:
        if "log" in values:
            level, name, text, event, details = values["log"]
            logging.getLogger(name).log(level, "%s", text, extra={"event": event, "details": details})
        if "status" in values:
            self._status, self._begun = unpacked(values["status"]), values["begun"]
        return outcome_of(values) if "outcome" in values else None

    def _kill(self, reason: str) -> None:
        with self._lock:
            if self._outcome is None:
                self._reason = self._reason or reason
                if self._process is not None and self._process.returncode is None:
                    kill_session(self._process.pid)

    def _reap(self) -> int | None:
        """Return the exit status of the child, None if there is none, when nothing of it is alive."""
        with self._lock:
            if self._process is None:
                return None
            status = reap(self._process)
        if self._spare is not None:
            self._spare.remove()
        return status

    def _lost(self, status: int | None) -> SubprocessLostError:
        process = "" if self._process is None else f" (process {self._process.pid})"
        reason = self._reason or f"ended with status {status} before its run did"
        return SubprocessLostError(
            f"changefeed '{self.feed.name}': its process{process} {reason}; see {self._log_path} for more", outage=False
        )
