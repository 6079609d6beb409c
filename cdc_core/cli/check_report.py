"""What `cdc check` finds out about a changefeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from cdc_core.cli.session import CliSession
from cdc_core.cli.tables import coloured
from cdc_core.errors import CdcError, ConfigError
from cdc_core.remedies import fitting

__all__ = ["CheckReport"]


class CheckReport:
    """The parts of one changefeed, perhaps a *job*. Each is printed as soon as it is added, unless it is *quiet*."""

    def __init__(self, session: CliSession, name: str, *, job: bool, width: int, quiet: bool) -> None:
        self.status = 0
        """The exit status: 2 when a part fails."""
        self._session, self._name, self._job, self._width, self._quiet = session, name, job, width, quiet
        self._parts: list[dict[str, Any]] = []
        self._print(f"changefeed '{name}'")

    def add(
        self, part: str, what: str, found: str | CdcError, *, notes: Sequence[str] = (), is_checked: bool = True
    ) -> None:
        """Add a part: *found* is its error, or has further lines about it, or says why it is not checked."""
        text, failed = str(found), isinstance(found, CdcError)
        if failed:
            self.status = ConfigError.exit_status
            text = fitting(text, self._name, job=self._job)
        text = self._session.masked(text)
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
