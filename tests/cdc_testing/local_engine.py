"""The engine's own parts, called in turn in this process, for tests that need no Spark.

Planning, reading, writing and the coordinator's turn are the classes that Spark calls, with a progress store and a sink
as in any run; only what Spark does between them is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cdc_core import Changefeed, Rangefeed, Sink, Span, Timestamp
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import Job
from cdc_core.engine.attempt_config import MaskedError, RunConfig
from cdc_core.engine.checks import check_dead_letters, check_encoder, check_sink, check_source, prepare_sink
from cdc_core.errors import from_wire
from cdc_core.frontier import Frontier
from cdc_core.plugins.host import PluginHost
from cdc_core.spark.source import Offset, RangefeedReader, SlicePartition
from cdc_core.spark.writer import SinkWriter
from cdc_core.store.progress import Progress, ProgressStore, store_url

__all__ = ["LocalEngine", "job_of"]

ANY: Any = None
"""Spark's own limit, and the schema of a stream, are not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrappedJob(Job):
    """A job whose components a test may stand in front of."""

    wrap_rangefeed: Callable[[Rangefeed], Rangefeed]
    wrap_sink: Callable[[Sink], Sink]

    def open_rangefeed(self, *, parallelism: int = 1) -> Rangefeed:
        return self.wrap_rangefeed(Job.open_rangefeed(self, parallelism=parallelism))

    def open_sink(self) -> Sink:
        return self.wrap_sink(Job.open_sink(self))


@cache
def _host() -> PluginHost:
    return PluginHost.load()


def job_of(
    source: str,
    sink: str,
    *tables: str,
    options: Mapping[str, Any] | None = None,
    name: str = "t",
    format_: str = "json",
) -> Job:
    """Return a job of installed plugins with nothing to wait for between steps. Raises: ConfigError."""
    defaults = {"updated": True, "resolved": True, "min_checkpoint_frequency": 0}
    changefeed = Changefeed(
        name=name, source=source, sink=sink, tables=tables, format=format_, options={**defaults, **(options or {})}
    )
    return resolve(changefeed, _host())


class LocalEngine:
    """One changefeed. `run` begins a run of it, as `cdc run` would; `step` takes one step and raises what ended it."""

    def __init__(
        self,
        job: Job,
        directory: Path,
        *,
        wrap_rangefeed: Callable[[Rangefeed], Rangefeed] = lambda rangefeed: rangefeed,
        wrap_sink: Callable[[Sink], Sink] = lambda sink: sink,
    ) -> None:
        fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
        self._job: Job = _WrappedJob(**fields, wrap_rangefeed=wrap_rangefeed, wrap_sink=wrap_sink)
        self._directory = directory
        self.store = ProgressStore(store_url(directory))
        self._reader: RangefeedReader | None = None
        self._writer: SinkWriter | None = None
        self._offset: Offset = {}
        self.steps = 0

    @property
    def progress(self) -> Progress:
        progress = self.store.load(self._job.name)
        assert progress is not None
        return progress

    @property
    def high_water(self) -> Timestamp:
        return self.progress.frontier.high_water

    def run(self) -> None:
        """Begin a run from the saved progress, whatever became of the last one."""
        self.close()
        job = self._job
        schemas = check_source(job)
        check_sink(job, schemas)
        check_encoder(job, schemas)
        check_dead_letters(job, schemas)
        prepare_sink(job, schemas)
        feed = self.store.register(job.name, job.definition())
        epoch = self.store.begin_run(job.name)
        run_dir = self._directory / "run" / str(epoch)
        run_dir.mkdir(parents=True)
        job = job.with_run(feed_id=feed.feed_id, epoch=epoch, state=self.store.url)
        rangefeed = job.open_rangefeed()
        progress = self.store.load(job.name)
        token = rangefeed.start(
            None if progress is None else progress.token,
            lambda intent: self.store.save_intent(job.name, epoch, intent),
        )
        names = [schema.name for schema in rangefeed.schemas()]
        rangefeed.close()
        if progress is None or not list(progress.frontier):
            progress = Progress(token=token, frontier=Frontier([Span(name.full) for name in names]))
        self.store.save(job.name, epoch, dataclasses.replace(progress, token=token))
        job = job.with_run(feed_id=feed.feed_id, epoch=epoch, table_names=names)
        config = RunConfig(job=job, state_dir=self._directory, run_dir=run_dir, start=token, parallelism=2)
        self._reader, self._writer = RangefeedReader(config), SinkWriter(config)
        self._offset = self._reader.initialOffset()

    def close(self) -> None:
        """Let go of what the planner holds; `run` goes on from here."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def step(self) -> bool:
        """Take one step; return whether there was one to take. Raises: the error that ends the run."""
        assert self._reader is not None, "run() begins a run"
        assert self._writer is not None
        try:
            end = self._reader.latestOffset(self._offset, ANY)
            if end == self._offset:
                return False
            partitions = self._reader.partitions(self._offset, end)
            messages: list[Any] = []
            for partition in partitions:
                assert isinstance(partition, SlicePartition)
                messages.append(self._writer.write(self._reader.read(partition)))
            self._writer.commit(messages, end["step"])
        except MaskedError as error:
            raise from_wire(str(error)) or error from None
        self._offset = end
        self.steps += 1
        return True

    def until(self, timestamp: Timestamp, *, most: int = 2000) -> None:
        """Return when all is resolved up to *timestamp*. Raises: AssertionError when *most* steps are not enough."""
        for _ in range(most):
            if self.high_water >= timestamp:
                return
            self.step()
        raise AssertionError(f"{timestamp} is never resolved: {self.progress.frontier}")
