"""Peak resident memory of every process of a tree."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

__all__ = ["Peaks", "watched"]

_ROLES = (
    ("python_streaming_source_runner", "planner"),
    ("python_streaming_sink_runner", "coordinator"),
    ("python_data_source", "coordinator"),
    ("pyspark.daemon", "worker"),
    ("pyspark/daemon", "worker"),
)


@dataclass(slots=True)
class Peaks:
    """The greatest resident set of each process, by process id, and what the process is.

    On Linux the kernel keeps the peak, so that nothing falls between two samples unless the process is born and dies
    between them. `private` is the greatest sum over the tree at one moment of what no two processes share.
    """

    rss: dict[int, int] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    private: int = 0

    def by_role(self) -> dict[str, int]:
        """Return the largest process of each role."""
        peaks: dict[str, int] = {}
        for pid, peak in self.rss.items():
            role = self.roles[pid]
            peaks[role] = max(peaks.get(role, 0), peak)
        return peaks

    @property
    def largest(self) -> int:
        return max(self.rss.values(), default=0)


@contextmanager
def watched(pid: int, *, every_s: float = 0.5) -> Iterator[Peaks]:
    """Look at process *pid* and its descendants until the block ends."""
    peaks = Peaks()
    stop = threading.Event()

    def look() -> None:
        root = psutil.Process(pid)
        while True:
            _sample(root, peaks)
            if stop.wait(every_s):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()


def _sample(root: psutil.Process, peaks: Peaks) -> None:
    private = 0
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        try:
            memory = process.memory_info()
            peaks.roles[process.pid] = _role(process, root)  # anew each time: a process becomes another by exec
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        private += memory.rss - getattr(memory, "shared", 0)
        peaks.rss[process.pid] = max(peaks.rss.get(process.pid, 0), _high_water(process.pid) or memory.rss)
    peaks.private = max(peaks.private, private)


def _high_water(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _role(process: psutil.Process, root: psutil.Process) -> str:
    if process.pid == root.pid:
        return "driver"
    if process.name() == "java":
        return "jvm"
    command = " ".join(process.cmdline())
    return next((role for part, role in _ROLES if part in command), process.name())
