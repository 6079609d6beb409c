"""Changefeeds by the definition that a progress store keeps: `--store`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import click

from cdc_core.cli.session import CliSession
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changed_plugins, changefeed_from
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.options import did_you_mean
from cdc_core.store.opening import store_exists
from cdc_core.store.progress import ChangefeedRecord, ProgressStore

__all__ = [
    "require_known",
    "require_one_name",
    "require_store",
    "state_option",
    "store_option",
    "stored_changefeed",
    "warn_of_other_plugins",
]

_LOG = logging.getLogger(__name__)

state_option = click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
store_option = click.option(
    "--store",
    metavar="DIR|URL",
    help="Take the changefeed called FILE from this progress store, which an earlier run wrote, instead of a file.",
)


def require_one_name(name: str | None, state: str | None = None) -> None:
    """Return if *name* and *state*, which `--store` leaves no place for, are None. Raises: ConfigError."""
    if state is not None:
        raise ConfigError("--store says where progress is stored, and --state too; remove --state")
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
    found = store.find(name)
    if found is None:
        known = did_you_mean(name, (feed.name for feed in store.list()))
        raise ConfigError(f"changefeed '{name}' is not in the progress store {store.shown}{known}")
    return found


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
