"""What the shell completes: the names of changefeeds, of a file or of a store."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from cdc_core.errors import CdcError

_OF_FILES = ("create", "run", "watch")
"""Commands that do not look names up in the store that the environment names."""
_MAX_WAIT_S = 2.0
"""How long the shell waits for a store."""


class FileOrName(click.Path):
    """A path, or the name of a changefeed in the store. Nothing is checked here."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name) for name in _stored(ctx) if name.startswith(incomplete)]
        if not names:
            return super().shell_complete(ctx, param, incomplete)
        files = sorted(os.listdir())  # bash lists them itself only where there is nothing else
        return names + [CompletionItem(file) for file in files if file.startswith(incomplete) and file[0] != "."]


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
    # every command imports this module, and few need a store
    from cdc_core.store.opening import store_url, stored_names

    found: list[str] = []

    def look() -> None:
        with suppress(Exception):  # whatever is wrong with a store, its commands say it; a key press does not
            found.extend(stored_names(store if "://" in store else store_url(Path(store))))

    thread = threading.Thread(target=look, name="completion", daemon=True)
    thread.start()
    thread.join(_MAX_WAIT_S)
    return list(found)
