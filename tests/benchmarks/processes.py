"""What every process of a tree takes: peak resident memory, and processor time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cdc_core.spark.python_forkserver import NAMES

_ROLES = {
    "pyspark.sql.streaming.python_streaming_source_runner": "planner",
    "pyspark.sql.worker.python_streaming_sink_runner": "coordinator",
    "pyspark.worker": "worker",
}
_HELPERS = ("python_launcher", "python_forkserver", "pyspark.daemon")


@dataclass(slots=True)
class Usage:
    """The greatest resident set of each process by process id, what the process is, and the tree's processor time.

    On Linux the kernel keeps the peak, so that nothing falls between two samples unless the process is born and dies
    between them. `private` is the greatest sum over the tree at one moment of what no two processes share. `cpu` is,
    sample by sample, the time and the seconds of processor time that each role has used so far.
    """

    rss: dict[int, int] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    private: int = 0
    cpu: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    cpu_of: dict[int, float] = field(default_factory=dict)

    def peak_by_role(self) -> dict[str, int]:
        """Return the largest process of each role."""
        peaks: dict[str, int] = {}
        for pid, peak in self.rss.items():
            role = self.roles[pid]
            peaks[role] = max(peaks.get(role, 0), peak)
        return peaks

    @property
    def peak(self) -> int:
        return max(self.rss.values(), default=0)

    def cpu_between(self, begin: float, end: float) -> dict[str, float]:
        """Return the processor seconds that each role used from time *begin* to *end*, as exact as the samples are."""
        before = next((used for at, used in reversed(self.cpu) if at <= begin), {})
        after = next((used for at, used in self.cpu if at >= end), self.cpu[-1][1] if self.cpu else {})
        return {role: round(used - before.get(role, 0.0), 2) for role, used in after.items()}


@contextmanager
def watched(pid: int, *, every_s: float = 0.5) -> Iterator[Usage]:
    """Look at process *pid* and its descendants until the block ends."""
    usage = Usage()
    stop = threading.Event()

    def look() -> None:
        root = psutil.Process(pid)
        while True:
            _sample(root, usage)
            if stop.wait(every_s):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        stop.set()
        thread.join()


def processor_seconds(pid: int) -> float:
    """Return what process *pid* and its descendants have used so far, those that have ended included."""
    root = psutil.Process(pid)
    found = [root.cpu_times()]
    for child in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(child.cpu_times())
    return float(sum(times.user + times.system + times.children_user + times.children_system for times in found))


def _sample(root: psutil.Process, usage: Usage) -> None:
    private = 0
    try:
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        try:
            memory = process.memory_info()
            times = process.cpu_times()
            command = " ".join(process.cmdline())
            if command:  # a process that has ended has none; anew each time, for exec makes it another
                usage.roles[process.pid] = _role(process, root, command)
            elif process.pid not in usage.roles:
                continue
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        private += memory.rss - getattr(memory, "shared", 0)
        usage.rss[process.pid] = max(usage.rss.get(process.pid, 0), _high_water(process.pid) or memory.rss)
        usage.cpu_of[process.pid] = times.user + times.system
    usage.private = max(usage.private, private)
    by_role: dict[str, float] = {}
    for pid, seconds in usage.cpu_of.items():
        by_role[usage.roles[pid]] = by_role.get(usage.roles[pid], 0.0) + seconds
    usage.cpu.append((time.time(), by_role))


def _high_water(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _role(process: psutil.Process, root: psutil.Process, command: str) -> str:
    if process.pid == root.pid:
        return "driver"
    name = str(process.name())
    if name == "java":
        return "jvm"
    if name.startswith("postgres"):
        return "postgres"
    if "python_launcher" not in command:
        for module, role in _ROLES.items():
            if name == NAMES[module] or command.endswith(module):
                return role
    return "spark helper" if any(part in command for part in _HELPERS) else "other"
