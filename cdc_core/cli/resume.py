"""`cdc resume`."""

from __future__ import annotations

import click

from cdc_core.cli.run import name_in, state_of
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.progress import ProgressStore, sqlite_file

__all__ = ["require_known", "resume"]


@click.command(short_help="Resume a paused changefeed.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
@debug_option
@click.pass_obj
def resume(session: CliSession, file: str, name: str | None, state: str | None) -> int:
    """Resume the changefeed NAME in FILE, which an error has paused, from where it stopped.

    Fix the cause first: otherwise the same error pauses it again. A run that waits notices within two seconds. Without
    one, the next `cdc run` continues. Only the name is read from FILE: passwords and plugins are not needed.
    """
    name, beside = name_in(file, name)
    url = state_of(beside, state)[1]
    session.add_secrets(secret_forms(uri_secrets(url)))
    store = ProgressStore(url)
    try:
        require_known(store, name)
        resumed = store.resume(name)
    finally:
        store.close()
    if resumed:
        click.echo(f"changefeed '{name}' is resumed: a waiting run continues now; otherwise start one with `cdc run`")
    else:
        click.echo(f"changefeed '{name}' is not paused")
    return 0


def require_known(store: ProgressStore, name: str) -> None:
    """Return when *store* knows the changefeed; create nothing. Raises: ConfigError."""
    remedy = "use --state to say where its progress is stored"
    file = sqlite_file(store.url)
    if file is not None and not file.is_file():
        raise ConfigError(f"changefeed '{name}' is not known: there is no progress store '{file}'; {remedy}")
    store.open()
    if store.find(name) is None:
        others = ", ".join(feed.name for feed in store.list())
        known = f"; it knows {others}" if others else ""
        raise ConfigError(f"changefeed '{name}' is not in the progress store{known}; {remedy}")
