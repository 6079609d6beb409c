"""New Python processes that find the same modules as this one, wherever it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

__all__ = ["command", "environment", "imported_by"]


def command(*arguments: str) -> list[str]:
    """Return the command line of a Python that does not search for modules in the current directory."""
    return [sys.executable, "-P", *arguments]


def environment(**changes: str) -> dict[str, str]:
    """Return the environment for such a Python: this one's search path for modules, and *changes*."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **changes}


def imported_by(*modules: str, beside: Sequence[str] = ()) -> set[str]:
    """Return the top-level modules that a new process loads for *modules* in addition to those for *beside*.

    Raises: AssertionError when one of *modules* cannot be imported.
    """
    return {name.partition(".")[0] for name in _loaded(*modules) - _loaded(*beside)}


@cache
def _loaded(*modules: str) -> frozenset[str]:
    """Return all modules of a new process that imports *modules*."""
    program = "\n".join([*(f"import {module}" for module in modules), "import sys", "print(*sys.modules)"])
    done = subprocess.run(command("-c", program), capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, f"cannot import {' and '.join(modules)}: {done.stderr.strip()[-500:]}"
    return frozenset(done.stdout.split())
