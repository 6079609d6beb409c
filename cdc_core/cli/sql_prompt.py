"""The prompt of `cdc sql`: statements from a terminal, with the history of earlier ones."""

from __future__ import annotations

import os
import readline
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from cdc_core.errors import CdcError
from cdc_core.statements.reading import is_complete
from cdc_core.statements.secrets import holds_secret

_FIRST, _NEXT = "cdc> ", "  -> "
_ENDS = ("\\q", "exit", "quit")
_MAX_KEPT = 1000
_GREETING = "Statements end with ; and may have several lines. \\q quits. See `cdc docs sql`."


def prompt(execute: Callable[[str], None], refuse: Callable[[CdcError], None]) -> None:
    """Read statements and *execute* each, until the end; an error is for *refuse*, and the next statement is read.

    Ctrl-C abandons what is typed. Statements with secrets are not kept in the history.
    """
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    history = Path(state).expanduser() / "cdc" / "sql_history"
    readline.set_auto_history(False)
    with suppress(OSError):
        readline.read_history_file(history)
    click.echo(_GREETING)
    while (text := _read()) is not None:
        _keep(text, history)
        try:
            execute(text)
        except CdcError as error:
            refuse(error)
        except KeyboardInterrupt as interrupt:
            if interrupt.args:  # by another signal than that of Ctrl-C
                raise
            click.echo("interrupted")


def _read() -> str | None:
    """Return the next statements, None at the end."""
    lines: list[str] = []
    while True:
        try:
            line = input(_NEXT if lines else _FIRST)
        except EOFError:
            click.echo()
            return None
        except KeyboardInterrupt as interrupt:
            if interrupt.args:
                raise
            click.echo()
            lines = []
            continue
        if not lines and line.strip().rstrip(";").lower() in _ENDS:
            return None
        if not lines and not line.strip():
            continue
        lines.append(line)
        if is_complete("\n".join(lines)):
            return "\n".join(lines)


def _keep(text: str, history: Path) -> None:
    """Add the statements to the history, as one line; whether that can be written does not matter."""
    if "--" in text or holds_secret(text):
        return
    readline.add_history(" ".join(text.split("\n")))
    readline.set_history_length(_MAX_KEPT)
    with suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        history.touch(mode=0o600)
        readline.write_history_file(history)
