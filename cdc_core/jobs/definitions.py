"""Jobs by what the store keeps of them: everything that a node needs to run one is there, or on the node."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from packaging.version import InvalidVersion, Version

from cdc_core.config.changefeed_options import require_exchange
from cdc_core.config.definition import changefeed_from
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.error_text import one_line
from cdc_core.errors import CdcError, ConfigError, FencedError, RetryableError, TerminalError
from cdc_core.jobs.cluster import NODES, Cluster
from cdc_core.jobs.settings import NodeSettings
from cdc_core.masking import mask
from cdc_core.plugins.host import PluginHost
from cdc_core.spark.placement_settings import pin
from cdc_core.store.job_values import JobRecord, JobState
from cdc_core.store.progress import ChangefeedRecord, ProgressStore
from cdc_core.telemetry.logs import logged_as

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 30.0
"""How long what a node lacks for a job is believed."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of a job in that state, and when."""

    state: JobState
    at: float
    problem: str | None


class Definitions:
    """Resolves the definitions of jobs in *store*, with the plugins, the secrets and the *settings* of this node.

    *keep_secret* is called with the secrets of each changefeed before it is used.
    """

    def __init__(
        self,
        store: ProgressStore,
        plugins: PluginHost,
        settings: NodeSettings,
        cluster: Cluster,
        *,
        keep_secret: Callable[[frozenset[str]], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._cluster = cluster
        self._plugins = plugins
        self._keep_secret = keep_secret
        self._found: dict[str, _Found] = {}

    def why_not(self, job: JobRecord) -> str | None:
        """Return why this node cannot do what *job* needs now, None if it can. Asked about free jobs at each poll.

        Raises: RetryableError from the store, and nothing else, whatever a plugin does.
        """
        found = self._found.get(job.name)
        if found is None or found.at + _LOOK_AGAIN_S <= time.monotonic():
            try:
                self.resolve(job.name, to_run=job.state == "running")
            except (ConfigError, TerminalError) as error:
                self.note(job.name, job.state, str(error))
            else:
                self.note(job.name, job.state, None)
        return self._found[job.name].problem

    def note(self, name: str, state: JobState, problem: str | None) -> None:
        """Note why this node cannot do what a job in *state* needs, None if it can. A reason that is new is logged."""
        before = self._found.get(name)
        if problem is not None and (before is None or before.problem != problem):
            log.warning(
                "job '%s' cannot run on this node, which will try again later: %s",
                name,
                problem,
                extra={"changefeed": name},
            )
        self._found[name] = _Found(state, time.monotonic(), problem)

    def problems(self) -> dict[str, str]:
        """Return every job that this node was asked about and cannot run, with the reason."""
        return {name: found.problem for name, found in self._found.items() if found.problem is not None}

    def forget_all_but(self, jobs: Iterable[JobRecord]) -> None:
        """Forget what was found of other jobs than these, and of these in another state."""
        states = {job.name: job.state for job in jobs}
        self._found = {name: found for name, found in self._found.items() if states.get(name) == found.state}

    def resolve(self, name: str, *, to_run: bool = True) -> ResolvedChangefeed:
        """Return the changefeed of job *name*, as it runs here: in the node's Spark session unless it has settings.

        Unless *to_run*, where it may run does not matter. Raises: TerminalError, whatever a plugin raises, such as when
        the job is unknown, or this node lacks a plugin, a version of one, or a secret; ConfigError when it is to run on
        the nodes' cluster and cannot; RetryableError from the store.
        """
        known = self._store.changefeeds.find(name)
        try:
            with logged_as(name):
                feed = self._resolved(name, known)
            if to_run:
                feed = pin(feed, self._settings.place)
        except BaseException as error:  # a plugin's may be SystemExit: it must not affect other jobs
            raise TerminalError(one_line(error), repairable=getattr(error, "repairable", False)) from error
        if to_run and feed.spark.get("master") == NODES:
            self._cluster.require()
        return feed

    def _resolved(self, name: str, known: ChangefeedRecord | None) -> ResolvedChangefeed:
        if known is None:
            raise ConfigError(f"changefeed '{name}' is not in the store {self._store.shown}")
        for plugin in known.definition.get("plugins", ()):
            self._require(plugin["kind"], plugin["name"], plugin["distribution"], plugin["version"])
        origin = f"the store {self._store.shown}"
        changefeed = changefeed_from(known.definition, name, origin=origin, environ=os.environ)
        feed = resolve(changefeed, self._plugins)
        self._keep_secret(feed.secrets())
        spark = feed.spark or self._settings.spark or {}
        require_exchange(f"changefeed '{name}'", feed.options, spark)
        return replace(feed, spark=spark)

    def to_start(self, name: str) -> ResolvedChangefeed:
        """Return the changefeed of job *name* as `resolve` does, with the cluster's present settings if it runs there.

        Raises: as `resolve` does; ConfigError when the cluster has no room.
        """
        feed = self.resolve(name)
        if feed.spark.get("master") != NODES:
            return feed
        return replace(feed, spark=self._cluster.application(feed))

    def drop(self, name: str, *, node_id: str) -> None:
        """Drop what the job holds at its source; once more does no harm. Raises: CdcError, whose text holds no secret.

        Called when no attempt of the job is alive, under an epoch that fences earlier ones. FencedError: session
        *node_id* has not claimed the job anymore. Another one may have reverted it, and the name may be a new job's.
        """
        known, progress = self._store.changefeeds.find(name), self._store.progress.load(name)
        feed = None if progress is None else self.resolve(name, to_run=False)
        job = self._store.jobs.find(name)  # asked last: if the claim stands, all of the above is of this job
        if known is None or job is None or job.node_id != node_id:
            raise FencedError(f"job '{name}' is being reverted by another node")
        if feed is None or progress is None:
            return  # what is to be created is saved before
        try:
            rangefeed = Parts(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch)).open_rangefeed()
            try:
                rangefeed.drop(progress.token)
            finally:
                with suppress(CdcError):
                    rangefeed.close()
        except RetryableError as error:
            raise RetryableError(mask(one_line(error), feed.secrets())) from error
        except BaseException as error:  # a plugin's may be SystemExit
            text = mask(one_line(error), feed.secrets())
            raise TerminalError(text, repairable=getattr(error, "repairable", False)) from error

    def _require(self, kind: str, name: str, distribution: str, version: str) -> None:
        """Return when this node has the plugin in that version or a newer one. Raises: ConfigError."""
        wanted = f"{distribution} {version}"
        for row in self._plugins.listing():
            if (row.kind, row.name) == (kind, name):
                if row.distribution == distribution and not _is_older(row.version, version):
                    return
                raise ConfigError(
                    f"{kind} '{name}' comes from {row.distribution} {row.version} on this node, but the job was created"
                    f" with {wanted}; install that version or a newer one"
                )
        raise ConfigError(f"this node has no {kind} '{name}', which the job needs; install {wanted}")


def _is_older(version: str, than: str) -> bool:
    try:
        return Version(version) < Version(than)
    except InvalidVersion:
        return version != than
