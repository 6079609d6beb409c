"""`cdc resume`."""

from __future__ import annotations

from pathlib import Path

import click

from cdc_core.cli.run import name_in, state_of
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.stored import require_known, require_one_name, store_option
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.progress import ProgressStore

__all__ = ["resume"]


@click.command(short_help="Resume a paused changefeed.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
@store_option
@debug_option
@click.pass_obj
def resume(session: CliSession, file: str, name: str | None, state: str | None, store: str | None) -> int:
    """Resume the changefeed NAME in FILE, which an error has paused, from where it stopped.

    Fix the cause first: otherwise the same error pauses it again. A run that waits notices within two seconds. Without
    one, the next `cdc run` continues. Only the name is read from FILE: passwords and plugins are not needed.
    """
    if store is None:
        name, beside = name_in(file, name)
    else:
        require_one_name(name, state)
        name, beside, state = file, Path(), store
    url = state_of(beside, state)[1]
    session.add_secrets(secret_forms(uri_secrets(url)))
    progress = ProgressStore(url)
    try:
        require_known(progress, name, option="--state" if store is None else "--store")
        resumed = progress.resume(name)
    finally:
        progress.close()
    if resumed:
        click.echo(f"changefeed '{name}' is resumed: a waiting run continues now; otherwise start one with `cdc run`")
    else:
        click.echo(f"changefeed '{name}' is not paused")
    return 0
