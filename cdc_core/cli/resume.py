"""`cdc resume`."""

from __future__ import annotations

import click

from cdc_core.cli.run import name_in, state_of
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.progress import ProgressStore, sqlite_file

__all__ = ["require_known", "resume"]


@click.command(short_help="Let a paused changefeed go on.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is kept: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
@debug_option
@click.pass_obj
def resume(session: CliSession, file: str, name: str | None, state: str | None) -> int:
    """Let the changefeed NAME of FILE, which an error has paused, go on from where it was.

    First see to the cause: what is not mended pauses it again. A run that waits notices within a second or two. Without
    one, the next `cdc run` goes on. Of FILE only the name is read: passwords and plugins need not be there.
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
        click.echo(f"changefeed '{name}' is resumed: a run that waits goes on now, otherwise the next `cdc run` does")
    else:
        click.echo(f"changefeed '{name}' is not paused: there is nothing to resume")
    return 0


def require_known(store: ProgressStore, name: str) -> None:
    """Return when *store* knows the changefeed; create nothing. Raises: ConfigError."""
    remedy = "tell by --state where its progress is kept"
    file = sqlite_file(store.url)
    if file is not None and not file.is_file():
        raise ConfigError(f"changefeed '{name}' is not known, as there is no progress store '{file}'; {remedy}")
    store.open()
    if store.find(name) is None:
        others = ", ".join(feed.name for feed in store.list())
        known = f", which knows {others}" if others else ""
        raise ConfigError(f"changefeed '{name}' is not known to its progress store{known}; {remedy}")
