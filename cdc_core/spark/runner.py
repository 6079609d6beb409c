"""Changefeeds in this process: several of them side by side, on one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import read_changefeed
from cdc_core.engine.fencing import RunLock
from cdc_core.engine.supervisor import Outcome, Supervisor
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.private_files import make_state_directory
from cdc_core.spark.host import SparkHost
from cdc_core.spark.placement_settings import pin, pinned
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status

__all__ = ["Outcome", "Runner", "Status", "Supervisor", "read_changefeed"]

_UNKNOWN = Locality()


class Runner:
    """Runs changefeeds in threads of this process, and stops all of them in `close`, or at the end of a `with` block.

    Locks, logs and scratch files are in *directory*; progress is there too, or in the database at the SQLAlchemy URL
    *store*. Spark's log is `NAME.spark.log`, with *name* as NAME. The changefeeds share one Spark session with the
    settings *spark*. Up to *changefeeds* changefeeds run at a time on this host without waiting for each other.

    *locality* is the locality of this process. On a cluster, all changefeeds of a session have the same
    *execution_locality*.

    A process has only one Spark session, and therefore one runner at a time. The caller must handle signals.

    Raises: ConfigError if there is no Java that Spark can run on, if *spark* does not say whether to encrypt, if
    *execution_locality* cannot be satisfied, if the progress store cannot be used, or if another runner with this
    *name* is working in *directory*.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        store: str | None = None,
        name: str = "cdc",
        spark: Mapping[str, str] = MappingProxyType({}),
        changefeeds: int = 1,
        locality: Locality = _UNKNOWN,
        execution_locality: str | None = None,
    ) -> None:
        self._directory = Path(directory).absolute()
        make_state_directory(self._directory)
        self._url = store or store_url(self._directory)
        self._locality = locality
        self._spark = dict(pinned(spark, execution_locality, here=locality))
        self._host = SparkHost(name, self._spark, state_dir=self._directory, changefeeds=changefeeds)
        self._plugins: PluginHost | None = None
        self._supervisors: list[Supervisor] = []
        self._lock = RunLock(self._directory / f"{name}.spark.lock")
        if not self._lock.acquire():
            raise ConfigError(
                f"'{name}' is already running from {self._directory} (process {self._lock.holder}); stop it first"
            )
        opened = ProgressStore(self._url)
        try:
            opened.open()
        except ConfigError:
            self._lock.release()
            raise
        finally:
            opened.close()

    def add(
        self,
        changefeed: Changefeed | ResolvedChangefeed,
        *,
        once: bool = False,
        resume_command: str | None = None,
        watch: Callable[[Status], None] | None = None,
    ) -> Supervisor:
        """Return a supervisor of *changefeed*, not started yet. `Supervisor` explains the other parameters.

        Connects to nothing: problems that only the source or the sink can report are in the outcome of the run. Raises:
        ConfigError if the changefeed cannot work, or if its Spark settings differ from those of this process.
        """
        if isinstance(changefeed, Changefeed):
            self._plugins = self._plugins or PluginHost.load()
            changefeed = resolve(changefeed, self._plugins)
        changefeed = pin(changefeed, self._locality)
        if dict(changefeed.spark) != self._spark:
            raise ConfigError(
                f"changefeed '{changefeed.name}' needs different Spark settings, or another execution_locality, than"
                " this process's session has; run it in its own process, or give all changefeeds here the same"
                " settings"
            )
        self._host.queries |= changefeed.queries().compute
        supervisor = Supervisor(
            changefeed,
            store=ProgressStore(self._url),
            state_dir=self._directory,
            host=self._host,
            once=once,
            resume_command=resume_command,
            watch=watch,
        )
        self._supervisors.append(supervisor)
        return supervisor

    def start(
        self,
        changefeed: Changefeed | ResolvedChangefeed,
        *,
        once: bool = False,
        watch: Callable[[Status], None] | None = None,
    ) -> Supervisor:
        """Add *changefeed*, start it and return its supervisor. Raises: ConfigError, as `add` does."""
        supervisor = self.add(changefeed, once=once, watch=watch)
        supervisor.start()
        return supervisor

    def close(self) -> None:
        """Stop every changefeed, and return after all have ended."""
        for supervisor in self._supervisors:
            supervisor.stop()
        for supervisor in self._supervisors:
            supervisor.wait()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
