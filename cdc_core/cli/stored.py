"""Which progress store a command has, `--store` and `--state`, and changefeeds by the definition that it keeps."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cdc_core.changefeeds.finding import Finder
from cdc_core.cli.session import CliSession
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changed_plugins, changefeed_from
from cdc_core.config.pipelines import pipeline_names
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.opening import store_exists
from cdc_core.store.progress import ChangefeedRecord, ProgressStore

_LOG = logging.getLogger(__name__)
STORE_VARIABLE = "CDC_STORE"
_BOTH = "--store says where progress is stored, and --state too; remove --state"

state_option = click.option(
    "--state",
    metavar="DIR|URL",
    help="As --store, also where FILE is the name of a pipeline that an installed package publishes.",
)


def store_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command with the argument FILE the option --store.

    Where FILE is a path, the definition is there: the command gets the value as its `state`, and None as `store`.
    """

    @click.option(
        "--store",
        metavar="DIR|URL",
        help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. FILE is then a path, such as"
        " shop.toml or ./shop, or else the name of a changefeed whose definition is there. Default: .cdc beside FILE;"
        " for a name, the environment variable CDC_STORE.",
    )
    @wraps(command)
    def chosen(*args: Any, file: str | None, store: str | None, **given: Any) -> Any:
        if store is not None and file is not None and _is_path(file):
            option = next((name for name in ("state", "states") if name in given), None)
            if option is None:
                raise ConfigError(f"'{file}' is a file, of which this command needs no progress; remove --store")
            if given[option]:
                raise ConfigError(_BOTH)
            given[option], store = store if option == "state" else (store,), None
        return command(*args, file=file, store=store, **given)

    return chosen


def _is_path(file: str) -> bool:
    """Return whether *file* is a path and not a name or a URI, whatever files there are."""
    return "://" not in file and (file.endswith(".toml") or os.sep in file)


def is_file(file: str) -> bool:
    """Return whether *file* is the path of a file, there or not, and not a name."""
    path = Path(file)
    return path.is_file() or path.suffix == ".toml" or len(path.parts) > 1


def store_or_environment(file: str | None, state: str | None, store: str | None) -> str | None:
    """Return *store*, otherwise the environment's if *file* is no file and *state* is None: FILE is a name there."""
    if store is not None or state is not None or (file is not None and is_file(file)):
        return store
    return os.environ.get(STORE_VARIABLE) or None


def definition_store(file: str, state: str | None, store: str | None) -> str | None:
    """Return the same for a command that reads definitions: a pipeline that a package publishes has its own."""
    return store if file in pipeline_names() else store_or_environment(file, state, store)


def require_one_name(name: str | None, state: str | None = None) -> None:
    """Return if *name* and *state*, which `--store` leaves no place for, are None. Raises: ConfigError."""
    if state is not None:
        raise ConfigError(_BOTH)
    if name is not None:
        raise ConfigError(f"--store takes one name, and '{name}' is given too; write `--store DIR|URL NAME`")


def stored_changefeed(session: CliSession, url: str, name: str) -> tuple[Changefeed, Mapping[str, Any]]:
    """Return changefeed *name* of the progress store at *url*, and its definition. Raises: ConfigError."""
    session.add_secrets(secret_forms(uri_secrets(url)))
    store = ProgressStore(url)
    try:
        definition = require_known(store, name, option="--store").definition
    finally:
        store.close()
    return changefeed_from(definition, name, origin=f"the progress store {store.shown}", environ=os.environ), definition


def warn_of_other_plugins(feed: ResolvedChangefeed, definition: Mapping[str, Any]) -> None:
    """Log one warning if the plugins of *feed* are not those of *definition*."""
    changes = changed_plugins(definition, feed.stored)
    if changes:
        _LOG.warning("changefeed '%s' runs with other versions of its plugins: %s", feed.name, changes)


def require_known(store: ProgressStore, name: str, *, option: str = "--state") -> ChangefeedRecord:
    """Return the changefeed that *store* knows; create nothing. Raises: ConfigError."""
    try:
        require_store(store, option=option)
    except ConfigError as error:
        raise ConfigError(f"changefeed '{name}' is not known: {error}") from error
    return Finder(store).known(name)


def require_store(store: ProgressStore, *, option: str = "--state") -> None:
    """Return when *store* exists and works; create nothing. Raises: ConfigError."""
    if not store_exists(store.url):
        made = (
            "; `cdc create` and `cdc node` make one; correct --store" if option == "--store" else f"; {_remedy(option)}"
        )
        raise ConfigError(f"there is no progress store '{store.shown}'{made}")
    store.open()


def _remedy(option: str) -> str:
    return f"use {option} to say where its progress is stored"
