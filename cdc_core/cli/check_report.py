"""What `cdc check` finds out about a changefeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from cdc_core.cli.session import CliSession
from cdc_core.cli.tables import coloured
from cdc_core.errors import CdcError

__all__ = ["CheckReport"]


class CheckReport:
    """The parts of one changefeed. Each is printed as soon as it is added, unless the report is *quiet*."""

    def __init__(self, session: CliSession, name: str, *, width: int, quiet: bool) -> None:
        self.status = 0
        """The exit status: the greatest of the errors'."""
        self._session, self._name, self._width, self._quiet = session, name, width, quiet
        self._parts: list[dict[str, Any]] = []
        self._print(f"changefeed '{name}'")

    def add(
        self, part: str, what: str, found: str | CdcError, *, notes: Sequence[str] = (), is_checked: bool = True
    ) -> None:
        """Add a part: *found* is its error, or has further lines about it, or says why it is not checked."""
        text, failed = self._session.masked(str(found)), isinstance(found, CdcError)
        if isinstance(found, CdcError):
            self.status = max(self.status, found.exit_status)
        outcome = coloured(text, "error") if failed else f"{coloured('ok', 'ok')}{text}" if is_checked else text
        self._print(f"  {part:{self._width}} {what} … {outcome}")
        for note in notes:
            self._print(f"  {'':{self._width}} note: {self._session.masked(note)}")
        self._parts.append(
            {
                "part": part,
                "what": what,
                "ok": not failed if is_checked else None,
                "error": text if failed else None,
                "details": [] if failed else [line.strip() for line in text.splitlines() if line],
                "notes": [*notes],
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; docs/operations.md explains each."""
        return {"name": self._name, "ok": self.status == 0, "parts": self._parts}

    def _print(self, line: str) -> None:
        if not self._quiet:
            click.echo(line)
