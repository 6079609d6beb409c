"""`cdc token`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from cdc_core.cli.session import CliSession, debug_option
from cdc_core.errors import ConfigError
from cdc_core.plugins.classes import needing

_BYTES = 32
_HEADING = "# Who may call a cdc server: NAME ROLE PROOF. `cdc docs security` explains it.\n"


@click.command
@click.argument("name")
@click.option(
    "--role", type=click.Choice(["view", "operate", "admin"]), required=True, help="Role of the token's owner."
)
@click.option("--tokens", metavar="FILE", envvar="CDC_TOKENS", required=True, help="The server's token file.")
@debug_option
@click.pass_obj
def token(session: CliSession, name: str, role: str, tokens: str) -> int:  # noqa: ARG001
    """Add NAME to the token file, and print the new token.

    The token itself is not stored: the file contains only its hash. Running servers accept the token at once. To revoke
    a token, delete its line.
    """
    with needing("starlette", otherwise="a server needs more libraries: pip install 'cdc-core[serve]'"):
        from cdc_core.web.access.callers import is_caller_name, read_callers, token_hash
    path = Path(tokens)
    if not is_caller_name(name):
        raise ConfigError(f"'{name}' is not a valid name; use 1 to 64 of the characters A-Z a-z 0-9 _ . @ -")
    known = read_callers(path) if path.exists() else []
    if any(caller.name == name for caller in known):
        raise ConfigError(f"--tokens {path}: '{name}' already exists; delete its line first, or choose another name")
    made = f"cdc_{secrets.token_urlsafe(_BYTES)}"
    _append(path, f"{name} {role} {token_hash(made)}\n")
    click.echo(made)
    return 0


def _append(path: Path, line: str) -> None:
    try:
        with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640), "r+", encoding="utf-8") as file:
            text = file.read()
            file.write((_HEADING if not text else "" if text.endswith("\n") else "\n") + line)
    except OSError as error:
        raise ConfigError(f"--tokens {path}: this file cannot be written: {error.strerror}; choose another") from error
