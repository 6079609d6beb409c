"""How much memory the processes of this host may take together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS, _LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def host_memory() -> int:
    """Return the bytes of memory of this host, or of the container or the unit that this process is in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _memory_limits():
        with suppress(OSError, ValueError):
            found = min(found, int(limit.read_text()))
    return found


def _memory_limits() -> Iterator[Path]:
    """Yield the files that may limit the memory of this process: of its control group, and of those around it."""
    for line in _GROUPS.read_text().splitlines() if _GROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            where, name = _LIMITS, "memory.max"
        elif "memory" in controllers.split(","):
            where, name = _LIMITS / "memory", "memory.limit_in_bytes"
        else:
            continue
        for group in (Path(path), *Path(path).parents):
            yield where.joinpath(*group.parts[1:], name)
