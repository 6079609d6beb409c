"""How much memory and how many cores the processes of this host may take together."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS, _LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def host_memory() -> int:
    """Return the bytes of memory of this host, or of the container or the unit that this process is in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group, first in _groups("memory"):
        with suppress(OSError, ValueError):
            found = min(found, int((group / ("memory.limit_in_bytes" if first else "memory.max")).read_text()))
    return found


def host_cores() -> int:
    """Return how many cores this process may use, rounded up: of this host, or of its container or unit."""
    found = len(os.sched_getaffinity(0))
    for group, first in _groups("cpu"):
        with suppress(OSError, ValueError):
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if first else ("cpu.max",)
            quota, period = map(int, " ".join((group / file).read_text() for file in files).split())
            if quota > 0:
                found = min(found, math.ceil(quota / period))
    return found


def _groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the control group of this process and those around it, and whether it is one of cgroups' first version."""
    for line in _GROUPS.read_text().splitlines() if _GROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        where = _LIMITS / controller if controllers else _LIMITS
        for group in (Path(path), *Path(path).parents):
            yield where.joinpath(*group.parts[1:]), bool(controllers)
