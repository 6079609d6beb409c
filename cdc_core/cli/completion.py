"""What the shell completes: the names of changefeeds, of a file or of a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cdc_core.errors import CdcError

__all__ = ["FileOrName", "complete_name"]

_OF_FILES = ("create", "run", "watch")
"""Commands that do not look names up in the store that the environment names."""


class FileOrName(click.Path):
    """A path, or the name of a changefeed in the store. Nothing is checked here."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name) for name in _stored(ctx) if name.startswith(incomplete)]
        return names or super().shell_complete(ctx, param, incomplete)


def complete_name(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the changefeeds whose names begin with *incomplete*: of the file that stands before, or of the store."""
    return [name for name in (_in_file(ctx) if "file" in ctx.params else _stored(ctx)) if name.startswith(incomplete)]


def _in_file(ctx: click.Context) -> Sequence[str]:
    from cdc_core.config.toml_file import changefeed_names  # as below

    try:
        return changefeed_names(Path(ctx.params["file"] or ""))
    except CdcError:
        return ()


def _stored(ctx: click.Context) -> Sequence[str]:
    """Return the names in the store, as it is: a newer version of cdc does not upgrade it for this."""
    store = ctx.params.get("store")
    if ctx.command.name in _OF_FILES:
        store = None if ctx.command.name == "create" else store
    else:
        store = store or os.environ.get("CDC_STORE")
    if not store:
        return ()
    import sqlalchemy as sa  # every command imports this module, and few need a store

    from cdc_core.store.opening import open_engine, store_exists, store_url
    from cdc_core.store.tables import CHANGEFEEDS

    url = store if "://" in store else store_url(Path(store))
    try:
        if not store_exists(url):
            return ()
        engine = open_engine(url)
        try:
            with engine.execution_options(cdc_reading=True).begin() as connection:
                return connection.execute(sa.select(CHANGEFEEDS.c.name).order_by(CHANGEFEEDS.c.name)).scalars().all()
        finally:
            engine.dispose()
    except (CdcError, sa.exc.SQLAlchemyError):
        return ()
