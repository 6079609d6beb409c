"""The channel of an attempt: the messages between its driver, planner, tasks and coordinator."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cdc_core.delivery.tracing import TraceRequest
from cdc_core.telemetry.stages import STAGES, Repeat, Stages
from cdc_core.timestamp import Timestamp

PLANNER, SLICE, COORDINATOR = "planner", "slice", "coordinator"

_POLL_S = 0.05
_SAVED_BYTES = 128
_ELSEWHERE = FileNotFoundError, PermissionError
"""What a process meets that does not have the directory of the driver."""
_NOT_COLLECTED = ("py4j", "pyspark", "cdc_core.engine.driver_log")
"""Loggers whose warnings are no message: of Spark's own parts, and of what repeats the messages."""

_RECORD = struct.Struct(f"<QIB{len(STAGES)}ddH")
"""Identity of the task, number of stage changes, the stage, seconds at each stage; then the time of the next attempt of
the component at work, and the length of the reason that follows, 0 when it repeats nothing."""
_MAX_REASON_BYTES = 400
_LEFT_BEHIND_S = 10.0
"""A file that is unlocked for so long belongs to a dead process, not to one that is just starting."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What is known of the progress that was saved with *step*."""

    step: int
    high_water: Timestamp
    latest: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One task at work: it has been at `stage` for `for_s`. `seconds` are those at each stage before that.

    `repeat` is what it tries again there by itself. Its reason is not masked. `process` and `thread` are the numbers
    that the system has given to those of the task.
    """

    role: str
    stage: str
    for_s: float
    seconds: Mapping[str, float]
    repeat: Repeat | None = None
    process: int = 0
    thread: int = 0


class AttemptChannel:
    """The messages between the processes of the attempt with directory *run_dir*, each a small file there.

    The driver creates the directory before it starts the attempt, and removes it at the end. The last message of a kind
    replaces the one before, except for warnings and activities. No message decides what counts as delivered: that is
    what the store says.

    ==================  =====================  ================================  ===================================
    message             written by, read by    when it is written                when it is lost
    ==================  =====================  ================================  ===================================
    saved               coordinator;           after each step that is saved     the planner asks the store, the
                        driver and planner                                       driver sees the next one
    stop                driver; planner        once, to end the attempt          the driver gives up the step that
                                                                                 runs after a limit
    stop acknowledged   planner; driver        between steps, after a stop: no   likewise
                                               step runs, and none will
    source warning      coordinator; driver    when it begins, changes and ends  status and log lack it until then
    hosts               coordinator; driver    where the last slices ran, at     the status lacks it until then
                                               most every ten seconds
    rescans             driver; planner        when other rescans wait           they begin with the next attempt
    traces              driver; planner        when others are active            they find nothing
    warnings            planner, coordinator;  at each warning                   the log of its process alone has it
                        driver
    activity            planner, tasks,        at each change of the stage       the status does not show the task;
                        coordinator; driver                                      its report has the seconds
    ==================  =====================  ================================  ===================================

    Rescans and traces are read before each step; the driver reads a few times a second. A task writes some dozens of
    bytes into the page cache whenever it enters another stage, a few times for each batch of rows.

    Planner and coordinator are on the driver's host, and so are tasks, unless there are executors elsewhere. A process
    that does not have the directory, there or as another user, writes nothing and reads nothing, and raises nothing.
    Only what the driver itself writes raises OSError then. The lock by which an attempt waits for the tasks of the one
    before outlives both, so it is not here: see `cdc_core.engine.fencing`.

    An object is used by one thread. It remembers which warnings it has returned, and since when it saw activities.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._activities = run_dir / "activity"
        self._warnings = run_dir / "warnings"
        self._source_warning: object = self  # not known: another process may have written one
        self._returned = 0
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def create(self) -> None:
        """Create the directory. Driver. Raises: FileExistsError."""
        self._activities.mkdir(parents=True)

    def publish_saved(self, saved: Saved) -> None:
        text = f"{saved.step} {saved.high_water} {saved.latest}".encode().ljust(_SAVED_BYTES)
        with suppress(*_ELSEWHERE):
            file = os.open(self._run_dir / "saved", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, text, 0)  # each step: cheaper than a file of its own
            finally:
                os.close(file)

    def saved(self) -> Saved | None:
        """Return what was published last, None before the first step. While one is written, a hint to ask the store."""
        try:
            step, high_water, latest = self._read("saved").split()
        except ValueError:
            return None
        return Saved(int(step), Timestamp.parse(high_water), Timestamp.parse(latest))

    def request_stop(self) -> None:
        """Ask the planner to plan no further step."""
        (self._run_dir / "stop").touch()

    @property
    def stop_requested(self) -> bool:
        return self._has("stop")

    def acknowledge_stop(self) -> None:
        """Say that no step runs, and that none will. Planner, between steps only."""
        with suppress(*_ELSEWHERE):
            (self._run_dir / "stopped").touch()

    @property
    def stop_acknowledged(self) -> bool:
        return self._has("stopped")

    def wait_for_stop(self, seconds: float) -> None:
        """Return after *seconds*, or soon after the request."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.stop_requested:
            time.sleep(min(left, _POLL_S))

    def publish_source_warning(self, text: str | None) -> None:
        """Tell what the source warns of; None takes back what this or another process told before.

        Called after each step: writes only what is new.
        """
        if text != self._source_warning:
            with suppress(*_ELSEWHERE):
                self._write("source-warning", text or "")
            self._source_warning = text

    def source_warning(self) -> str | None:
        """Return what was published last, not masked; None for nothing."""
        return self._read("source-warning") or None

    def publish_hosts(self, slices: Mapping[str, int]) -> None:
        """Tell how many of the last slices ran on each host."""
        with suppress(OSError):  # a status that cannot be written is no reason to fail
            self._write("hosts", json.dumps(slices, sort_keys=True))

    def hosts(self) -> dict[str, int]:
        """Return what was published last: at first, and where all tasks run on the driver's host, nothing."""
        told: dict[str, int] = json.loads(self._read("hosts") or "{}")
        return told

    def publish_rescans(self, asked: str) -> None:
        """Tell which rescans wait, as `Rescans.all_waiting` says it."""
        self._write("rescans", asked)

    def rescans(self) -> str:
        """Return what identifies the rescans that wait, at first nothing. When it changes, ask the store for them."""
        return self._read("rescans")

    def publish_traces(self, asked: str) -> None:
        """Tell what is to be traced, as `Traces.active` says it."""
        self._write("traces", asked)

    def traces(self) -> tuple[TraceRequest, ...]:
        """Return what is to be traced. Costs one look at a file that is not there for nothing."""
        asked = self._read("traces")
        return tuple(TraceRequest(**request) for request in json.loads(asked)) if asked else ()

    def warn(self, text: str) -> None:
        """Have *text* logged by the driver as a warning, as one line."""
        with suppress(OSError), self._warnings.open("a", encoding="utf-8") as file:
            file.write(" ".join(text.split()) + "\n")

    @contextmanager
    def collected_warnings(self) -> Iterator[None]:
        """Have the driver log what this process warns of in the block."""
        collector, root = _Collector(self), logging.getLogger()
        root.addHandler(collector)
        try:
            yield
        finally:
            root.removeHandler(collector)

    def warnings(self) -> list[str]:
        """Return the warnings since the last call, not masked. Cheap."""
        try:
            with self._warnings.open("rb") as file:
                file.seek(self._returned)
                whole, newline, _ = file.read().rpartition(b"\n")
        except _ELSEWHERE:
            return []
        self._returned += len(whole) + len(newline)
        return whole.decode(errors="replace").splitlines()

    @contextmanager
    def at_stages(self, role: str, *, first: str) -> Iterator[Stages]:
        """Measure the stages of the block, a task's work in this thread, and show them to the driver."""
        path = self._activities / f"{role}-{os.getpid()}-{threading.get_native_id()}"
        file = _opened(path)
        if file is None:
            with Stages(first).measured() as stages:
                yield stages
            return
        task = time.monotonic_ns()

        def publish(stages: Stages) -> None:
            with suppress(OSError):  # a status that cannot be written is no reason to fail
                os.pwrite(file, _record(task, stages), 0)

        try:
            stages = Stages(first, changed=publish)
            publish(stages)
            with stages.measured():
                yield stages
        finally:
            with suppress(OSError):
                path.unlink()
            os.close(file)

    def activities(self) -> list[Activity]:
        """Return what tasks do now. `for_s` counts from when this object first saw it."""
        now = time.monotonic()
        found: list[Activity] = []
        seen: dict[str, tuple[tuple[int, int], float]] = {}
        for path in sorted(self._activities.glob("*")):
            record = _read_record(path)
            if record is None:
                continue
            task, changes, stage, seconds, repeat = record
            role, process, thread = path.name.split("-")
            known = self._seen.get(path.name)
            since = known[1] if known is not None and known[0] == (task, changes) else now
            seen[path.name] = (task, changes), since
            found.append(
                Activity(
                    role=role,
                    process=int(process),
                    thread=int(thread),
                    stage=STAGES[stage],
                    for_s=now - since,
                    seconds=dict(zip(STAGES, seconds, strict=True)),
                    repeat=repeat,
                )
            )
        self._seen = seen
        return found

    def _write(self, name: str, text: str) -> None:
        """Replace the message *name*: a reader sees all of it, or all of the one before."""
        written = self._run_dir / f"{name}.{os.getpid()}"
        written.write_text(text, encoding="utf-8")
        written.replace(self._run_dir / name)

    def _read(self, name: str) -> str:
        try:
            return (self._run_dir / name).read_text(encoding="utf-8")
        except _ELSEWHERE:
            return ""

    def _has(self, name: str) -> bool:
        return os.path.exists(self._run_dir / name)


class _Collector(logging.Handler):
    def __init__(self, channel: AttemptChannel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(_NOT_COLLECTED):
            self._channel.warn(record.getMessage())


def _opened(path: Path) -> int | None:
    """Return a file that this process locks until it closes the file or dies; None where that is impossible."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file
        except OSError:
            os.close(file)
            return None
        os.close(file)  # the driver removed it as a dead process's before it was locked


def _record(task: int, stages: Stages) -> bytes:
    seconds, repeat = stages.settled_seconds, stages.repeat
    reason = b"" if repeat is None else repeat.reason.encode("utf-8", "replace")[:_MAX_REASON_BYTES]
    place = STAGES.index(stages.now), *(seconds[name] for name in STAGES)
    return _RECORD.pack(task, stages.changes, *place, 0.0 if repeat is None else repeat.next_at, len(reason)) + reason


def _read_record(path: Path) -> tuple[int, int, int, list[float], Repeat | None] | None:
    """Return the record in the file at *path*, None when its process has ended.

    The file of a killed process is removed: workers come and go as long as a run lasts.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        record = os.pread(file, _RECORD.size + _MAX_REASON_BYTES, 0)
        if len(record) < _RECORD.size:
            return None
        task, changes, stage, *seconds, next_at, length = _RECORD.unpack_from(record)
        reason = record[_RECORD.size : _RECORD.size + length].decode("utf-8", "ignore")
        return task, changes, stage, seconds, Repeat(reason=reason, next_at=next_at) if reason else None
    else:
        if time.time() - os.fstat(file).st_mtime > _LEFT_BEHIND_S:
            with suppress(OSError):
                path.unlink()
    finally:
        os.close(file)
    return None
