"""Changefeeds by name: as the store knows them, as jobs, and resolved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changefeed_from
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.fencing import RunLock
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.options import did_you_mean
from cdc_core.plugins.host import PluginHost
from cdc_core.private_files import make_state_directory
from cdc_core.registrations import DEFAULT_SCHEMA
from cdc_core.store.job_rows import known_job
from cdc_core.store.job_values import JobRecord
from cdc_core.store.liveness import is_alive
from cdc_core.store.progress import ChangefeedRecord, ProgressStore
from cdc_core.store.verbs import UnknownError, Verb, require


def _keep_none(_secrets: frozenset[str]) -> None:
    """Keep no secret: of a caller that prints nothing."""


def resolved(
    changefeed: Changefeed, plugins: PluginHost, keep_secrets: Callable[[frozenset[str]], object]
) -> ResolvedChangefeed:
    """Return *changefeed* with its options and *plugins*; see `Finder` for *keep_secrets*. Raises: ConfigError."""
    uris = (*changefeed.sources, changefeed.sink, str(changefeed.options.get("dead_letter", "")))
    keep_secrets(secret_forms(frozenset().union(*map(uri_secrets, uris))))
    feed = resolve(changefeed, plugins)
    keep_secrets(feed.secrets())
    return feed


class Finder:
    """What every verb works with: the store, the plugins, and the secrets. Safe with several threads.

    Without *plugins*, the installed ones are loaded when a verb needs them. References of definitions are looked up in
    *environ*. *keep_secrets* is called with secrets before they are used, so that the caller masks them.
    Of a node's own server, *node* is its name: what is started here is offered to that node first.
    """

    def __init__(
        self,
        store: ProgressStore,
        *,
        plugins: PluginHost | None = None,
        environ: Mapping[str, str] = os.environ,
        keep_secrets: Callable[[frozenset[str]], object] = _keep_none,
        node: str | None = None,
    ) -> None:
        self.store, self._node = store, node
        self._plugins, self._environ, self._keep_secrets = plugins, environ, keep_secrets

    @property
    def origin(self) -> str:
        """Where definitions are read, for errors."""
        return f"the progress store {self.store.shown}"

    @property
    def plugins(self) -> PluginHost:
        self._plugins = self._plugins or PluginHost.load()
        return self._plugins

    def schema_of(self, source: str) -> str:
        """Return the schema of tables listed without one for *source*, a URI; the default if its plugin is missing."""
        with suppress(ConfigError):
            return self.plugins.rangefeed_for(source).schema
        return DEFAULT_SCHEMA

    def known(self, name: str) -> ChangefeedRecord:
        """Return the changefeed, a job or not. Raises: UnknownError."""
        found = self.store.changefeeds.find(name)
        if found is None:
            near = did_you_mean(name, (each.name for each in self.store.changefeeds.all()))
            raise UnknownError(f"changefeed '{name}' is not in the progress store {self.store.shown}{near}")
        return found

    def find_job(self, name: str, *, verb: Verb | None = None, by_file: bool = False) -> JobRecord | None:
        """Return the job; None when the changefeed is not one, or unknown.

        Raises: RefusedError when its state refuses *verb*; ConfigError when it was named *by_file*, as a job has its
        definition in the store alone.
        """
        job = self.store.jobs.find(name)
        if job is not None and by_file:
            raise ConfigError(
                f"changefeed '{name}' is a job, whose definition is in the store; use --store DIR|URL {name}"
                f" instead of its file"
            )
        if job is not None and verb is not None:
            require(job, verb)
        return job

    def require_job(self, name: str, *, verb: Verb | None = None, of_runs: bool = False) -> JobRecord:
        """Return the job; with *of_runs* also one of `cdc run`.

        Raises: UnknownError; RefusedError when its state refuses *verb*.
        """
        with self.store.transaction(reading=True) as connection:
            job = known_job(connection, name, of_runs=of_runs, verb=verb)
        if verb is not None:
            require(job, verb)
        return job

    def resolved(self, changefeed: Changefeed) -> ResolvedChangefeed:
        """Return *changefeed* with its plugins and options. Raises: ConfigError."""
        return resolved(changefeed, self.plugins, self._keep_secrets)

    def feed(self, name: str, definition: Mapping[str, Any]) -> ResolvedChangefeed:
        """Return the changefeed that a *definition* in the store describes, as it would run here. Raises: ConfigError.

        *name* is what the store calls it.
        """
        return self.resolved(changefeed_from(definition, name, origin=self.origin, environ=self._environ))


@contextmanager
def stopped(store: ProgressStore, name: str, state_dir: Path) -> Iterator[None]:
    """Let no run of changefeed *name* begin from *state_dir* during the block. A job rests.

    Raises: ConfigError when a run is alive there, or has been heard from on another host within half a minute; when
    the job is in another state.
    """
    job = store.jobs.find(name)
    require(job, "move")
    make_state_directory(state_dir)
    with RunLock(state_dir / f"{name}.lock") as lock:
        if not lock.acquire():
            raise ConfigError(f"changefeed '{name}' is running from {state_dir} (process {lock.holder}); stop it first")
        if job is None:  # of a job, the store knows whether a node runs it
            require_no_run(store, name)
        yield


def require_no_run(store: ProgressStore, name: str) -> None:
    """Return when no `cdc run` of the changefeed is alive, as far as the store has heard. Raises: ConfigError."""
    status = store.statuses.load(name)
    if status is not None and is_alive(status, now=datetime.now(UTC)):
        host, pid = status.values.get("host"), status.values.get("pid")
        raise ConfigError(
            f"changefeed '{name}' is being run by `cdc run` on {host} (process {pid}); stop it first, or wait half a "
            "minute if it was killed"
        )
