"""`cdc run` as a process tree that a test can watch and hurt."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Protocol, Self, TypeVar

import psutil
from cdc_testing.documented_role import documented
from cdc_testing.processes import kill, runs_tasks, tree

from cdc_core.cli.located import STATE_DIRECTORY
from cdc_core.cli.main import main

T = TypeVar("T")
LIMIT_S = 600.0


class Lender(Protocol):
    """What runs in this process are on: `KeptSpark`, or `KeptThreads`."""

    def lent(self) -> AbstractContextManager[None]: ...


def at_once(work: Callable[[], T], *, times: int = 4) -> list[T]:
    """Return what *work* returns in so many threads that begin together."""
    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(lambda _: work(), range(times)))


def eventually(what: str, condition: Callable[[], T], *, limit_s: float = LIMIT_S, look_s: float = 0.02) -> T:
    """Return what *condition* returns as soon as that is true. Raises: AssertionError saying *what* did not come.

    Of a condition that is dear to look at, four fifths of the time are left to what it waits for.
    """
    began = time.monotonic()
    pause = threading.Event()
    while True:
        looked_at = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < began + limit_s, f"waited {limit_s:.0f} s for {what}"
        pause.wait(max(look_s, min(1.0, 4 * (now - looked_at))))


class Feed:
    """A changefeed in a directory of its own: its TOML file, its state, its files, its log.

    Runs are started and ended one after another; the log holds all of them. Leaving the context kills what runs.
    Progress is kept in its state directory, or in the *store* with this URL. *sections* are those of tables, in TOML.
    With *threads* a run is one process: see `cdc_testing.thread_nodes`.
    """

    def __init__(
        self,
        directory: Path,
        source: str | Sequence[str],
        tables: Sequence[str] = (),
        *,
        query: str | None = None,
        sections: str = "",
        options: Mapping[str, object] | None = None,
        spark: Mapping[str, str] | None = None,
        sink: str | None = None,
        format_: str | None = None,
        store: str | None = None,
        threads: bool = False,
    ) -> None:
        self.directory = directory
        self._module = "cdc_testing.thread_nodes" if threads else "cdc_core"
        self.files = directory / "files"
        self.state = directory / ("state" if store is None else STATE_DIRECTORY)
        self._progress = str(self.state) if store is None else store
        self.toml = directory / "feed.toml"
        self.log_path = directory / "run.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._here = False
        chosen = {"updated": True, "resolved": "0s", "min_checkpoint_frequency": "0s", **(options or {})}
        lines = [
            "[changefeed.test]",
            f"source = {json.dumps(documented(source) if isinstance(source, str) else [*map(documented, source)])}",
            *([] if format_ is None else [f"format = {_toml(format_)}"]),
            f"tables = [{', '.join(_toml(table) for table in tables)}]" if query is None else f"query = {_toml(query)}",
            f"sink = {_toml(sink or f'file://{self.files}')}",
            sections,
            "[changefeed.test.options]",
            *(f"{name} = {_toml(value)}" for name, value in chosen.items()),
            "[changefeed.test.spark]",
            *(f"{_toml(name)} = {_toml(value)}" for name, value in (spark or {}).items()),
        ]
        directory.mkdir(parents=True, exist_ok=True)
        self.toml.write_text("\n".join(lines) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._kill_all()
        if error is not None:
            sys.stderr.write(f"--- {self.log_path}\n{self.log_tail()}\n")

    def start(self, *arguments: str) -> None:
        """Start `cdc run` and return at once."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, "run", str(self.toml), "--state", self._progress, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait(self, *, limit_s: float = LIMIT_S) -> int:
        """Return the exit status once the run has ended by itself."""
        assert self.process is not None
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._kill_all()
            raise AssertionError(f"the run did not end in {limit_s:.0f} s\n{self.log_tail()}") from None

    def once(self, spark: Lender | None = None) -> None:
        """Run with --once and see that it succeeds: in its own process, or in this one on *spark*."""
        self.to_its_end(spark, "--once")

    def to_its_end(self, spark: Lender | None = None, *arguments: str) -> None:
        """Run until the run ends by itself, and see that it succeeds: as `once`."""
        if spark is None:
            self.start(*arguments)
            status = self.wait()
        else:
            with _limited(f"{self.toml} did not end"):
                status = self._run_here(spark, *arguments)
        assert status == 0, f"cdc run ended with status {status}\n{self.log_tail()}"

    def refusal(self, spark: Lender) -> str:
        """Run in this process on *spark*, see that it ends with status 2, and return its error."""
        assert self._run_here(spark, "--once") == 2, self.log_tail()
        (error,) = [line for line in self.log().splitlines() if line.startswith("error: ")]
        return error

    def during(self, spark: Lender, work: Callable[[], None], *, status: int = 0) -> None:
        """Run in this process on *spark*, do *work* in a thread once it runs, then stop it; see that both succeed.

        With another *status*, the run has to end with that by itself.
        """
        failures: list[BaseException] = []
        before = self.log().count(": running")

        def work_and_stop() -> None:
            try:
                self.until("it runs", lambda: self.log().count(": running") > before)
                work()
            except BaseException as error:
                failures.append(error)
            if self._here:
                signal.raise_signal(signal.SIGTERM)

        thread = threading.Thread(target=work_and_stop)
        handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may come when the run has just ended by itself
        self._here = True
        thread.start()
        try:
            ended = self._run_here(spark)
        finally:
            self._here = False
            thread.join()
            signal.signal(signal.SIGTERM, handler)
        if failures:
            raise failures[0]
        assert ended == status, f"cdc run ended with status {ended}\n{self.log_tail()}"

    def stop(self) -> None:
        """Stop cleanly and see that it does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        status = self.wait()
        assert status == 0, f"cdc run ended with status {status}\n{self.log_tail()}"

    def until(self, what: str, condition: Callable[[], bool], *, limit_s: float = LIMIT_S) -> None:
        """Return as soon as *condition* holds while the run is alive."""

        def holds() -> bool:
            met = condition()
            alive = self._here or (self.process is not None and self.process.poll() is None)
            assert met or alive, f"the run ended before {what}\n{self.log_tail()}"
            return met

        eventually(what, holds, limit_s=limit_s)

    def _run_here(self, spark: Lender, *arguments: str) -> int:
        """Run the command in this process, what it says in the log, and leave logging as it was."""
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        with spark.lent(), self.log_path.open("a") as log, redirect_stderr(log):
            try:
                return main(["run", str(self.toml), "--state", self._progress, *arguments])
            finally:
                root.handlers[:] = handlers
                root.setLevel(level)

    def _kill_all(self) -> None:
        if self.process is not None and self.process.poll() is None:
            for process in self.tree():
                kill(process)
            self.process.wait()

    def tree(self) -> list[psutil.Process]:
        """Return the driver and all its descendants, itself first."""
        assert self.process is not None
        return tree(self.process.pid)

    def kill_driver(self) -> None:
        """SIGKILL `cdc run` itself, and wait until the JVM and workers that it leaves behind are gone too."""
        assert self.process is not None
        orphans = self.tree()[1:]
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(orphans, timeout=300)
        assert not alive, f"processes outlive the driver: {alive}"

    def freeze(self, condition: Callable[[], bool]) -> bool:
        """Stop `cdc run` itself where it is and return True, if *condition* holds then; else let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if condition():
            return True
        self.process.send_signal(signal.SIGCONT)
        return False

    def workers(self) -> list[psutil.Process]:
        """Return the Python worker processes that run tasks."""
        return [process for process in self.tree() if runs_tasks(process)]

    def kill_a_worker(self) -> bool:
        """SIGKILL a Python worker in the middle of a slice; return whether there was one. Spark loses its task."""
        worker = self.stop_a_worker()
        if worker is not None:
            kill(worker)
        return worker is not None

    def stop_a_worker(self) -> psutil.Process | None:
        """SIGSTOP a Python worker in the middle of a slice and return it, None when there is none."""
        for path in self.state.glob("*.run/*/activity/slice-*"):
            worker = self._worker(int(path.name.split("-")[1]))
            if worker is not None and path.exists():  # it was stopped at its work, and does not come to its end
                return worker
            if worker is not None:
                worker.resume()
        return None

    def lost_tasks(self) -> int:
        """Return how many tasks Spark lost, of those that its log tells of: at level INFO, all."""
        return sum(path.read_text(errors="replace").count(" Lost task ") for path in self.state.glob("*.spark.log"))

    def _worker(self, pid: int) -> psutil.Process | None:
        """Return the worker *pid* of this run, stopped, None where it has ended."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if runs_tasks(process):
                process.suspend()
                return process
        return None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-25:])


@contextmanager
def _limited(what: str) -> Iterator[None]:
    """Stop a run in this process, as Ctrl-C does, when it takes too long. Raises: AssertionError then."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(LIMIT_S, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    assert not late.is_set(), f"{what} in {LIMIT_S:.0f} s"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        value = json.dumps(value)
    return str(value) if isinstance(value, int | float) else json.dumps(str(value))
