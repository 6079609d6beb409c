"""What other threads ask of a run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

__all__ = ["Orders", "Stopped"]


class Stopped(Exception):  # noqa: N818
    """Told to stop while nothing was running yet."""


@dataclass(slots=True)
class Orders:
    """Stop, abandon the running step as well, pause."""

    stop: threading.Event = field(default_factory=threading.Event)
    abandon: threading.Event = field(default_factory=threading.Event)
    pause: str | None = None
    """The reason to pause for. Changed under `pausing` alone."""
    pausing: threading.Lock = field(default_factory=threading.Lock)
