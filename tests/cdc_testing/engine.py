"""The scripted source and sink as a feed, the engine that runs it, and what the sink's journal proves.

`python -m cdc_testing.engine DIRECTORY [STORE]` runs the feed in the file `job` of DIRECTORY with DIRECTORY as its
state, and the progress store in STORE if that is given, in a process that a test can kill.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from cdc_testing.scripted import COUNTER, JOURNAL, PLAIN, Script, read_journal

from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.component import Component
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.ipc import unpacked
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.supervisor import Supervisor
from cdc_core.options import Duration
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status, StatusLog

_running: list[Supervisor] = []


def counter_feed(control: Path, *, options: Mapping[str, Any] | None = None, **changes: Any) -> ResolvedChangefeed:
    """Return a feed that counts into a journal in *control*. *options* are the changefeed's.

    Of *changes*, those that CounterRangefeed knows are its options, all others fields of the feed.
    """
    counter = {
        name: changes.pop(name) for name in ("rows_per_step", "total", "keys", "slices", "batch_rows") & changes.keys()
    }
    defaults: dict[str, Any] = {
        "resolved": Duration(0.0),
        "retry_backoff": Duration(0.05),
        "max_retry_backoff": Duration(0.2),
    }
    fields: dict[str, Any] = {
        "name": "t",
        "tables": ("counter",),
        "sources": ("counter://",),
        "destination": "journal://",
        "rangefeed": Component(registration=COUNTER, values={"control": str(control), **counter}),
        "encoder": Component(registration=PLAIN),
        "sink": Component(registration=JOURNAL, values={"control": str(control)}),
        "options": ChangefeedOptions(**{**defaults, **(options or {})}),
    }
    return ResolvedChangefeed(**{**fields, **changes})


class Journal:
    """What happened at the sink, in order, and the promises that can be judged by it alone."""

    def __init__(self, control: Path) -> None:
        self.events = read_journal(control)

    def of(self, kind: str) -> list[list[Any]]:
        return [event for event in self.events if event[0] == kind]

    @property
    def epochs(self) -> set[int]:
        return {event[1] for event in self.of("rows")}

    @property
    def resolved(self) -> list[int]:
        return [event[2] for event in self.of("resolved")]

    @property
    def released(self) -> list[int]:
        return [event[1] for event in self.of("release")]

    def numbers(self) -> set[int]:
        return {n for event in self.of("rows") for _, n in event[4]}

    def faults(self, *, total: int) -> list[str]:
        """Return what breaks at-least-once for 1 to *total*, per-key order, or the meaning of resolved marks."""
        faults = []
        seen: set[int] = set()
        newest: dict[int, int] = {}
        for event in self.events:
            if event[0] == "rows":
                for key, n in event[4]:
                    if n not in seen and n < newest.get(key, 0):
                        faults.append(f"key {key}: {n} first came after {newest[key]}")
                    seen.add(n)
                    newest[key] = max(n, newest.get(key, 0))
            elif event[0] == "resolved":
                missing = set(range(1, min(event[2], total) + 1)) - seen
                if missing:
                    faults.append(f"resolved {event[2]} before {min(missing)} and {len(missing) - 1} others")
        missing = set(range(1, total + 1)) - seen
        if missing:
            faults.append(f"{len(missing)} never came, the first is {min(missing)}")
        return faults


def run_feed(
    feed: ResolvedChangefeed,
    *,
    store: ProgressStore,
    state_dir: Path,
    host: QueryHost | None = None,
    once: bool = False,
    after_unclean: bool = False,
    status: Callable[[Status], None] = lambda _: None,
    resume_command: str | None = None,
) -> int:
    """Run *feed* as `cdc run` would and return the exit status. *status* gets every status, and may end the run.

    Without a *host* Spark is its host. Raises: what ended the run.
    """
    from cdc_core.cli.run import supervise
    from cdc_core.spark.host import SparkHost

    supervisor = Supervisor(
        feed,
        store=store,
        state_dir=state_dir,
        host=host or SparkHost(feed.name, feed.spark, state_dir=state_dir),
        once=once,
        after_unclean=after_unclean,
        resume_command=resume_command,
        watch=status,
    )
    _running.append(supervisor)
    try:
        return supervise([supervisor], StatusLog(interval_s=float("inf")))
    finally:
        _running.remove(supervisor)


class Engine:
    """Runs counting changefeeds that share a state directory; `script` pulls their strings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = Script(directory)
        self.store = ProgressStore(store_url(directory))
        self.statuses: list[Status] = []

    def run(
        self,
        *,
        host: QueryHost | None = None,
        once: bool = True,
        after_unclean: bool = False,
        watch: Callable[[Status], object] = lambda _: None,
        within_s: float = 600.0,
        resume_command: str | None = None,
        **feed: Any,
    ) -> int:
        """Run to the end. *watch* sees every status. Raises: what the run raises; AssertionError when it takes long."""
        deadline = time.monotonic() + within_s

        def show(status: Status) -> None:
            self.statuses.append(status)
            assert time.monotonic() < deadline, f"the run did not end in {within_s:.0f} s: {status}"
            watch(status)

        return run_feed(
            counter_feed(self.directory, **feed),
            store=self.store,
            state_dir=self.directory,
            host=host,
            once=once,
            after_unclean=after_unclean,
            status=show,
            resume_command=resume_command,
        )

    @property
    def journal(self) -> Journal:
        return Journal(self.directory)

    @property
    def phases(self) -> list[str]:
        """The phases that the run went through."""
        phases: list[str] = []
        for status in self.statuses:
            if not phases or phases[-1] != status.phase:
                phases.append(status.phase)
        return phases

    @property
    def saved(self) -> int:
        progress = self.store.progress.load("t")
        return 0 if progress is None else int(progress.token["n"])


def stop_runs() -> None:
    """Stop what `run_feed` runs in this process."""
    for supervisor in list(_running):
        supervisor.stop()


def resume_runs() -> None:
    """Resume what `run_feed` runs in this process."""
    for supervisor in list(_running):
        supervisor.resume()


def abandon_runs() -> None:
    """Stop what `run_feed` runs in this process, in the middle of a step."""
    for supervisor in list(_running):
        supervisor.abandon()


def main(directory: Path, store: Path | None = None) -> int:
    """Run `job`; keep `phase`, and what Spark shows of the query in `shown`, up to date."""
    from cdc_core.spark import host

    feed = unpacked((directory / "job").read_text())
    start, queries = host.start_query, []

    def start_shown(*attempt: Any) -> Any:
        queries.append(start(*attempt))
        return queries[-1]

    host.start_query = start_shown

    def show(status: Status) -> None:
        if status.phase == "running":
            with (directory / "shown").open("a") as file, redirect_stdout(file):
                queries[-1].explain(extended=True)
                print(queries[-1].recentProgress, queries[-1].status, queries[-1].exception())
        (directory / "phase").write_text(status.phase)

    progress = ProgressStore(store_url(store or directory))
    return run_feed(feed, store=progress, state_dir=directory, status=show)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
