"""What the tasks of an attempt do at this moment: small files in the attempt's directory, read by the driver.

Reports come when a step is done; these files show a step that is stuck. A task writes some dozens of bytes into the
page cache whenever it enters another stage, a few times for each batch of rows.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cdc_core.telemetry.stages import STAGES, Repeat, Stages

__all__ = ["COORDINATOR", "PLANNER", "SLICE", "Activities", "Activity", "activity_directory", "at_stages"]

PLANNER, SLICE, COORDINATOR = "planner", "slice", "coordinator"

_RECORD = struct.Struct(f"<QIB{len(STAGES)}ddH")
"""Identity of the task, number of stage changes, the stage, seconds at each stage; then the time of the next attempt of
the component at work, and the length of the reason that follows, 0 when it repeats nothing."""
_MOST_REASON = 400

_LEFT_BEHIND_S = 10.0
"""A file that is unlocked for so long belongs to a dead process, not to one that is just starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One task at work: it has been at `stage` for `for_s`. `seconds` are those at each stage before that.

    `repeat` is what it tries again there by itself. Its reason is not masked. `process` is the number of its process.
    """

    role: str
    stage: str
    for_s: float
    seconds: Mapping[str, float]
    repeat: Repeat | None = None
    process: int = 0


def activity_directory(run_dir: Path) -> Path:
    """Return where tasks of the attempt with directory *run_dir* report what they do, if the driver has created it."""
    return run_dir / "activity"


@contextmanager
def at_stages(role: str, *, run_dir: Path, first: str) -> Iterator[Stages]:
    """Measure the stages of the block, a task's work, and show them to the driver.

    On a host without the driver's directory they are only measured.
    """
    path = activity_directory(run_dir) / f"{role}-{os.getpid()}"
    file = _opened(path)
    if file is None:
        with Stages(first).measured() as stages:
            yield stages
        return
    task = time.monotonic_ns()

    def tell(stages: Stages) -> None:
        with suppress(OSError):  # a status that cannot be written is no reason to fail
            os.pwrite(file, _record(task, stages), 0)

    try:
        stages = Stages(first, changed=tell)
        tell(stages)
        with stages.measured():
            yield stages
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)


class Activities:
    """The activities of an attempt, for its driver."""

    def __init__(self, run_dir: Path) -> None:
        self._directory = activity_directory(run_dir)
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}

    def look(self) -> list[Activity]:
        """Return what tasks do now. `for_s` counts from when this object first saw it."""
        now = time.monotonic()
        found: list[Activity] = []
        seen: dict[str, tuple[tuple[int, int], float]] = {}
        for path in sorted(self._directory.glob("*")):
            record = _read(path)
            if record is None:
                continue
            task, changes, stage, seconds, repeat = record
            role, _, process = path.name.partition("-")
            known = self._seen.get(path.name)
            since = known[1] if known is not None and known[0] == (task, changes) else now
            seen[path.name] = (task, changes), since
            found.append(
                Activity(
                    role=role,
                    process=int(process),
                    stage=STAGES[stage],
                    for_s=now - since,
                    seconds=dict(zip(STAGES, seconds, strict=True)),
                    repeat=repeat,
                )
            )
        self._seen = seen
        return found


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
    reason = b"" if repeat is None else repeat.reason.encode("utf-8", "replace")[:_MOST_REASON]
    place = STAGES.index(stages.now), *(seconds[name] for name in STAGES)
    return _RECORD.pack(task, stages.changes, *place, 0.0 if repeat is None else repeat.next_at, len(reason)) + reason


def _parsed(record: bytes) -> tuple[int, int, int, list[float], Repeat | None] | None:
    if len(record) < _RECORD.size:
        return None
    task, changes, stage, *seconds, next_at, length = _RECORD.unpack_from(record)
    reason = record[_RECORD.size : _RECORD.size + length].decode("utf-8", "ignore")
    return task, changes, stage, seconds, Repeat(reason=reason, next_at=next_at) if reason else None


def _read(path: Path) -> tuple[int, int, int, list[float], Repeat | None] | None:
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
        return _parsed(os.pread(file, _RECORD.size + _MOST_REASON, 0))
    else:
        if time.time() - os.fstat(file).st_mtime > _LEFT_BEHIND_S:
            with suppress(OSError):
                path.unlink()
    finally:
        os.close(file)
    return None
