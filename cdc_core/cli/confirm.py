"""What is done for good is asked about first."""

from __future__ import annotations

import sys

import click

from cdc_core.errors import ConfigError


def agreed(question: str, *, yes: bool, declined: str = "nothing was removed") -> bool:
    """Return whether the user agrees; say *declined* if not. Raises: ConfigError without a terminal to ask on."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("this must be confirmed, and the standard input is not a terminal; use --yes")
    if click.confirm(question):
        return True
    click.echo(declined)
    return False
