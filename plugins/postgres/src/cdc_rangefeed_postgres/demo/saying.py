"""What a demo prints."""

from __future__ import annotations

import sys
from pathlib import Path


def say(text: str) -> None:
    """Print *text* at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def shown(path: Path) -> str:
    """Return *path* relative to the current directory, if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
