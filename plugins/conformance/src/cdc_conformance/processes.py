"""New Python processes that find the same modules as this one, wherever it was started."""

from __future__ import annotations

import os
import sys

__all__ = ["command", "environment"]


def command(*arguments: str) -> list[str]:
    """Return the command line of a Python that does not look for modules in the present directory."""
    return [sys.executable, "-P", *arguments]


def environment(**changes: str) -> dict[str, str]:
    """Return the environment for such a Python, in which modules are looked for as they are here, with *changes*."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **changes}
