"""One changefeed as a thread of this process: start it, watch it, stop it, and learn how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.run import Run
from cdc_core.engine.run_control import RunContext, RunControl
from cdc_core.engine.run_status import RunStatus
from cdc_core.store.progress import ProgressStore
from cdc_core.telemetry.logs import logged_as
from cdc_core.telemetry.status import Status


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    - complete: everything that the run had to deliver is durable and resolved (*once*, end_time, initial_scan=only)
    - stopped: the run was stopped; its last step was saved
    - abandoned: the run was told to abandon its step; the next run repeats the step
    - given up: the run was stopped, but its last step took too long; the next run repeats the step
    - failed: `error` says why; the text of a CdcError is one sentence for the user, and may contain secrets
    """

    kind: Literal["complete", "stopped", "abandoned", "given up", "failed"]
    error: Exception | None = None


class Supervisor:
    """Runs one changefeed in a thread. Its methods may be called from any thread.

    Progress is in *store*, which is closed at the end of the run; locks and scratch files are in *state_dir*.
    Supervisors of one process share *host*. With *once*, the run is complete when everything that was committed at the
    source before the start is durable and resolved. With initial_scan=only, it is complete when the scan is; with
    end_time, when everything up to that time is. The source then keeps nothing for the changefeed, and another run has
    nothing to do.

    Errors that a retry may fix are logged, shown in the status, and retried. With on_error=pause, any other error
    pauses a changefeed that has run: the run waits until the progress store says that the changefeed was resumed, and
    continues from the last saved progress. A run of a paused changefeed waits too, before it connects to the source or
    the sink. With *once*, no run waits: the changefeed is paused, and the run fails. Error messages suggest
    *resume_command*.

    *job_epoch* is the epoch under which a node has claimed the changefeed as a job. With it, on_error=pause ends the
    run with the error, and the node pauses the job.

    *after_unclean* says that another node ran the changefeed before and may still be alive: if a scan is in progress,
    or the changefeed was moved, the first attempt waits for as long as a call of the sink may last.

    *watch* is called in the thread with each new status, a few times a second. If it raises an exception, the run
    abandons the running step and ends with this exception as the outcome's error. *on_end* is called last in the
    thread, when there is an `outcome`.
    """

    def __init__(
        self,
        feed: ResolvedChangefeed,
        *,
        store: ProgressStore,
        state_dir: Path,
        host: QueryHost,
        once: bool = False,
        after_unclean: bool = False,
        resume_command: str | None = None,
        job_epoch: int | None = None,
        watch: Callable[[Status], None] | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.feed = feed
        self._on_end = on_end
        self._control = RunControl()
        self._store = store
        self._outcome: Outcome | None = None
        context = RunContext(
            # A run that is to end does not wait between steps.
            feed=replace(feed, min_checkpoint_frequency_s=0.0) if once else feed,
            store=store,
            state_dir=state_dir.absolute(),
            host=host,
            control=self._control,
            status=RunStatus(feed.name, store, log_name=host.log_name, watch=watch),
            once=once,
            job_epoch=job_epoch,
        )
        self._run = Run(context, after_unclean=after_unclean, resume_command=resume_command)
        self._thread = threading.Thread(target=self._work, name=f"changefeed {feed.name}", daemon=True)

    def start(self) -> None:
        """Begin the run and return at once. Call it only once."""
        self._thread.start()

    def stop(self) -> None:
        """Let the running step end and be saved, then end the run. Returns at once; does nothing after the end."""
        self._control.stop.set()

    def abandon(self) -> None:
        """End the run without waiting for the running step, which the next run repeats. Returns at once."""
        self._control.abandon.set()
        self._control.stop.set()

    def pause(self, reason: str) -> None:
        """Let the running step end and be saved, then pause the changefeed. Returns at once.

        The pause is saved in the progress store, with *reason*, and outlasts this run: see `resume`. A run that is
        still starting is paused after it has begun.
        """
        with self._control.pause_lock:
            self._control.pause, self._control.resumed = reason, False

    def resume(self) -> None:
        """Let a paused changefeed continue from its saved progress.

        Raises: RetryableError from the progress store; even then, a pause that is not saved yet is undone.
        """
        self._run.resume()

    @property
    def status(self) -> Status:
        """The current state of the run. Contains no secret."""
        return self._run.status

    @property
    def has_begun(self) -> bool:
        """Whether the run has read from its source: an error before that is one of its set-up."""
        return self._run.has_begun

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended, None before its end."""
        return self._outcome

    def wait(self, timeout_s: float | None = None) -> Outcome | None:
        """Return the outcome as soon as the run has ended, or None after *timeout_s*.

        Before the start, return None at once.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return self._outcome

    def _work(self) -> None:
        try:
            with logged_as(self.feed.name):
                outcome = Outcome(self._run.run())
        except Exception as error:
            outcome = Outcome("failed", error)
        except BaseException as error:  # a plugin's, such as SystemExit
            outcome = Outcome("failed", RuntimeError(f"{type(error).__name__}: {error}"))
        self._store.close()
        self._outcome = outcome  # after that: who sees it may use the store
        self._on_end()
