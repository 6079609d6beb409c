"""A changefeed as its user runs it: the command `cdc run` in a process of its own, watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.processes import Usage, watched
from benchmarks.workload import TABLE

from cdc_core.store.progress import Progress, ProgressStore, store_url

NAME = "bench"
_POLL_S = 0.1
_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """When rows were there, in seconds since 1970, and how many."""

    at: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class FeedRun:
    """One run to the end.

    `started` is when the command began, in seconds since 1970. `saves` are when progress was saved, in seconds from
    there, and how many rows were durable then; the first of them is the token that the run starts from, saved directly
    before its Spark query starts. `first` is when the first rows came to the destination, in seconds from there, and
    how many: `Feed.first_arrival` of the destination says what that means. `usage` is of the run's processes.
    """

    started: float
    saves: tuple[tuple[float, int], ...]
    first: tuple[float, int] | None
    ended_s: float
    steps: int
    files: int
    usage: Usage

    @property
    def rows(self) -> int:
        return self.saves[-1][1]

    @property
    def complete_s(self) -> float:
        """Seconds from the start of the command until all rows were durable and saved."""
        return next(at for at, rows in self.saves if rows == self.rows)

    @property
    def rate(self) -> float:
        """Rows per second from the first arrival to the last saved step, without the rows that arrived first.

        What is counted of the peer, too: neither the start of the JVM nor that of the connector. Where no arrival is
        known, from the first saved step.
        """
        at, rows = self.first or next(save for save in self.saves if save[1])
        return (self.rows - rows) / (self.complete_s - at)

    @property
    def rate_of_query(self) -> float:
        """Rows per second from the start of the Spark query, the JVM being up already, to the last saved step."""
        return self.rows / (self.complete_s - self.saves[0][0])

    @property
    def rate_with_start(self) -> float:
        """Rows per second from the start of the command to the last saved step."""
        return self.rows / self.complete_s

    @property
    def peak_rss(self) -> int:
        return self.usage.peak

    def details(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "steps": self.steps,
            "files": self.files,
            "rate": self.rate,
            "rate_of_query": self.rate_of_query,
            "rate_with_start": self.rate_with_start,
            "complete_s": self.complete_s,
            "ended_s": self.ended_s,
            "first": self.first,
            "saves": self.saves,
            "peak_rss_by_role": self.usage.peak_by_role(),
            "cpu_s_by_role": self.usage.cpu_between(self.started + self.saves[0][0], self.started + self.complete_s),
        }


class Feed(ABC):
    """A changefeed of the benchmarks' table of *uri*, or of what *query* selects of it, as JSON into *sink*.

    Its files are under *directory*.
    """

    def __init__(
        self,
        directory: Path,
        uri: str,
        *,
        sink: str,
        options: Mapping[str, Any] | None = None,
        query: str | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> None:
        file = directory / "feed.toml"
        state = directory / "state"
        values = {"updated": True, "resolved": "0s", **(options or {})}
        selected = f'tables = ["{TABLE}"]' if query is None else f'query = "{query}"'
        lines = [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]
        file.write_text(
            f'[changefeed.{NAME}]\nsource = "{uri}"\n{selected}\nsink = "{sink}"\n'
            f'format = "json"\n[changefeed.{NAME}.options]\n' + "\n".join(lines) + "\n"
            f"[changefeed.{NAME}.spark]\n" + "".join(f'"{key}" = "{value}"\n' for key, value in (spark or {}).items())
        )
        command = [sys.executable, "-m", "cdc_core", "run", str(file), "--state", str(state)]
        self.log_path = directory / "cdc.log"
        self._command = Command(command, state_dir=state, log_path=self.log_path)

    def run_once(self, *arguments: str, sample_s: float = 0.5) -> FeedRun:
        """Deliver everything committed by now; *arguments* are further ones of the command.

        Raises: RuntimeError with the command's last words when it fails.
        """
        self.look_before()
        run = self._command.run("--once", *arguments, sample_s=sample_s)
        first = self.first_arrival()
        return run if first is None else replace(run, first=(first.at - run.started, first.rows))

    @abstractmethod
    def look_before(self) -> None:
        """Note what the destination holds already."""

    @abstractmethod
    def first_arrival(self) -> Arrival | None:
        """Return what came to the destination first since `look_before`, None when nothing did."""

    @contextmanager
    def running(self) -> Iterator[Usage]:
        """Run the changefeed inside the block, from when it has saved its first step to a clean stop."""
        with self._command.running() as usage:
            yield usage

    def await_resolved(self, time_s: float) -> None:
        """Return when all is resolved that was committed by *time_s*, in seconds since 1970. Inside `running`.

        Raises: RuntimeError when that takes too long.
        """
        self._command.await_resolved(time_s)


class Command:
    """A command that runs a changefeed called NAME with its progress in *state_dir*."""

    def __init__(self, command: Sequence[str], *, state_dir: Path, log_path: Path) -> None:
        self._arguments = command
        self._state_dir = state_dir
        self._log_path = log_path
        self._store = ProgressStore(store_url(state_dir))

    def run(self, *arguments: str, sample_s: float = 0.5, timeout_s: float = 1200.0) -> FeedRun:
        """Run the command to its end. Raises: RuntimeError with its last words when it fails."""
        before = self._progress()
        started = time.time()
        saves: list[tuple[float, Progress]] = []
        with self._start(*arguments) as process, watched(process.pid, every_s=sample_s) as usage:
            deadline = time.monotonic() + timeout_s
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the changefeed did not end in {timeout_s:.0f} s: {self._last_words()}")
                self._note(saves, since=started)
                time.sleep(_POLL_S)
            ended = time.time()
            self._note(saves, since=started)
        if process.returncode:
            raise RuntimeError(f"the changefeed failed: {self._last_words()}")
        return self._run(before, saves, started=started, ended=ended, usage=usage)

    @contextmanager
    def running(self) -> Iterator[Usage]:
        """Run the changefeed inside the block, from when it has saved its first step to a clean stop."""
        started = time.time()
        before = _steps(self._progress())
        with self._start() as process, watched(process.pid) as usage:
            try:
                while _steps(self._progress()) <= before:
                    if process.poll() is not None or time.time() - started > _START_LIMIT_S:
                        raise RuntimeError(f"the changefeed does not run: {self._last_words()}")
                    time.sleep(_POLL_S)
                yield usage
            finally:
                process.terminate()
                process.wait(_STOP_LIMIT_S)

    def await_resolved(self, time_s: float, *, timeout_s: float = 1200.0) -> None:
        deadline = time.monotonic() + timeout_s
        while (progress := self._progress()) is None or progress.frontier.high_water.wall < time_s * 1e9:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing was resolved for {timeout_s:.0f} s: {self._last_words()}")
            time.sleep(_POLL_S)

    @contextmanager
    def _start(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [*self._arguments, *arguments]
        with self._log_path.open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def _progress(self) -> Progress | None:
        return self._store.progress.load(NAME) if self._state_dir.exists() else None

    def _note(self, saves: list[tuple[float, Progress]], *, since: float) -> None:
        progress = self._progress()
        if progress is None or progress.saved_at is None:
            return
        at = progress.saved_at.timestamp()
        if at >= since and (not saves or saves[-1][1] != progress):
            saves.append((at, progress))

    def _run(
        self,
        before: Progress | None,
        saves: list[tuple[float, Progress]],
        *,
        started: float,
        ended: float,
        usage: Usage,
    ) -> FeedRun:
        base = _rows(before)
        final = saves[-1][1].counters
        earlier = {} if before is None else before.counters
        return FeedRun(
            started=started,
            saves=tuple((at - started, _rows(progress) - base) for at, progress in saves),
            first=None,
            ended_s=ended - started,
            steps=int(final.get("steps", 0) - earlier.get("steps", 0)),
            files=int(final.get("files", 0) - earlier.get("files", 0)),
            usage=usage,
        )

    def _last_words(self) -> str:
        return " | ".join(self._log_path.read_text(errors="replace").splitlines()[-5:])


def _rows(progress: Progress | None) -> int:
    return 0 if progress is None else int(progress.counters.get("rows", 0))


def _steps(progress: Progress | None) -> int:
    return 0 if progress is None else int(progress.counters.get("steps", 0))


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | int | float) else f'"{value}"'
