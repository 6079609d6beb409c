"""Options as the command line has them: `--set NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.errors import ConfigError

__all__ = ["assigned"]


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Return options by name, each written as `NAME=VALUE`. Raises: ConfigError."""
    found: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise ConfigError(f"--set {assignment}: this sets nothing; write --set NAME=VALUE")
        if name in found:
            raise ConfigError(f"--set {name} is given twice; keep one of them")
        found[name] = value
    return found
