"""The engine's own parts, called in turn in this process, for tests that need no Spark.

Planning, reading, writing and the coordinator's turn are what Spark calls, with a progress store and a sink as in any
run; only what Spark does between them is left out.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from cdc_testing.documented_role import documented
from cdc_testing.scripted import ThreadDied

from cdc_core import Changefeed, Sink, SliceReader, Timestamp
from cdc_core.config.component import Component
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt import Attempt, Task
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.checks import as_stored, check_and_prepare_sink, check_source
from cdc_core.engine.control_requests import ControlRequests
from cdc_core.engine.slices import TaskMessage
from cdc_core.engine.start_position import register, start_token
from cdc_core.errors import from_wire
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import Progress, ProgressStore, store_url

_MAX_TASK_ATTEMPTS = 4

T = TypeVar("T")

task_attempt: ContextVar[int] = ContextVar("task_attempt", default=0)
"""How often the task of this thread was begun before."""


@cache
def installed_plugins() -> PluginHost:
    """Return the one host of the tests, which takes a tenth of a second."""
    return PluginHost.load()


def resolved_feed(
    source: str | Sequence[str],
    sink: str,
    *tables: str,
    query: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str = "t",
    format_: str = "json",
) -> ResolvedChangefeed:
    """Return a feed of installed plugins with nothing to wait for between steps. Raises: ConfigError.

    A *query* takes the place of tables. Without Spark nobody evaluates it: only the source leaves rows out.
    """
    defaults = {"updated": True, "resolved": True, "min_checkpoint_frequency": 0}
    changefeed = Changefeed(
        name=name,
        source=documented(source) if isinstance(source, str) else tuple(map(documented, source)),
        sink=sink,
        tables=tables,
        query=query,
        format=format_,
        options={**defaults, **(options or {})},
    )
    return resolve(changefeed, installed_plugins())


class Steps:
    """The steps of an attempt in this process, one slice after the other. Used by one thread."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._offset = self._end = self._attempt.first_offset

    def plan(self) -> bool:
        """Plan the next step; return whether there is one. Raises: MaskedError, as `take` does."""
        self._end = self._attempt.next_offset(self._offset)
        return self._end != self._offset

    def take(self, passed: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter) -> None:
        """Take the step that was planned. *passed* is what brings a slice's rows from its reader to its writer."""
        tasks = list(enumerate(self._attempt.tasks(self._offset, self._end)))
        exchanges = self._attempt.config.exchanges
        rows = self._exchanged(tasks) if exchanges else [partial(self._read, *task) for task in tasks]
        self._attempt.commit([_repeated(partial(self._write, each, passed)) for each in rows])
        self._offset = self._end

    def _read(self, number: int, task: Task) -> Generator[pa.RecordBatch]:
        with closing(self._attempt.read(number, task)) as rows:  # a writer that fails leaves it in the middle
            for _, batch in rows:
                yield batch

    def _exchanged(self, tasks: Sequence[tuple[int, Task]]) -> list[Callable[[], Generator[pa.RecordBatch]]]:
        """Read all *tasks*, and return what gives each writing task its rows, whenever it is begun."""
        rows: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for number, task in tasks:
            for writer, batch in _repeated(lambda: list(self._attempt.read(number, task))):  # noqa: B023 (called here)
                rows[writer].append(batch)
        return [partial(_each, rows[writer]) for writer in range(self._attempt.config.writers)]

    def _write(
        self, read: Callable[[], Generator[pa.RecordBatch]], passed: Callable[..., Iterator[pa.RecordBatch]]
    ) -> TaskMessage:
        with closing(read()) as rows:
            return self._attempt.write(passed(rows), task_attempt=task_attempt.get())

    def close(self) -> None:
        self._attempt.close()


def _repeated(work: Callable[[], T]) -> T:
    """Return what *work* returns, a task that is begun again when it dies, as on Spark."""
    for begun in range(_MAX_TASK_ATTEMPTS):
        task_attempt.set(begun)
        with suppress(ThreadDied):
            return work()
    raise ThreadDied("a task died again and again")


def _each(batches: Sequence[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    yield from batches


class LocalEngine:
    """One changefeed. `run` begins a run of it, as `cdc run` would; `step` takes one step and raises what ended it."""

    def __init__(
        self,
        feed: ResolvedChangefeed,
        directory: Path,
        *,
        wrap_reader: Callable[[SliceReader], SliceReader] = lambda reader: reader,
        wrap_sink: Callable[[Sink], Sink] = lambda sink: sink,
    ) -> None:
        self._feed = dataclasses.replace(
            feed, rangefeed=wrapped(feed.rangefeed, reader=wrap_reader), sink=wrapped(feed.sink, sink=wrap_sink)
        )
        self._directory = directory
        self.store = ProgressStore(store_url(directory))
        self._steps: Steps | None = None
        self._requests: ControlRequests | None = None
        self.steps = 0
        self._pause = threading.Event()

    @property
    def progress(self) -> Progress:
        progress = self.store.progress.load(self._feed.name)
        assert progress is not None
        return progress

    @property
    def high_water(self) -> Timestamp:
        return self.progress.frontier.high_water

    def run(self) -> None:
        """Begin a run from the saved progress, whatever became of the last one."""
        feed = as_stored(self._feed, self.store)
        check_and_prepare_sink(feed, check_source(feed))
        self.attempt()

    def attempt(self) -> None:
        """Begin an attempt, the first one of a run or another one."""
        self.close()
        feed = self._feed
        known = register(feed, self.store)
        epoch = self.store.changefeeds.begin_attempt(feed.name)
        run_dir = self._directory / "run" / str(epoch)
        run_dir.mkdir(parents=True)
        feed = feed.for_attempt(feed_id=known.feed_id, epoch=epoch, state=self.store.url, parallelism=2)
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            token = start_token(feed, self.store, rangefeed)
            names = [schema.name for schema in rangefeed.schemas()]
        feed = feed.for_attempt(feed_id=feed.feed_id, epoch=epoch, table_names=names)
        config = AttemptConfig(feed=feed, state_dir=self._directory, run_dir=run_dir, start=token)
        self._steps = Steps(Attempt(config))
        self._requests = ControlRequests(feed.name, self.store, config.channel)

    def close(self) -> None:
        """Let go of what the planner holds; `run` goes on from here."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def step(self) -> bool:
        """Take one step; return whether there was one to take, if not after a moment. Raises: what ends the run."""
        assert self._steps is not None, "run() begins a run"
        assert self._requests is not None
        self._requests.poll()
        try:
            if not self._steps.plan():
                self._pause.wait(0.005)
                return False
            self._steps.take()
        except MaskedError as error:
            raise from_wire(str(error)) or error from None
        self.steps += 1
        return True

    def until(self, timestamp: Timestamp, *, most: int = 2000) -> None:
        """Return when all is resolved up to *timestamp*. Raises: AssertionError when *most* steps are not enough."""
        for _ in range(most):
            if self.high_water >= timestamp:
                return
            self.step()
        raise AssertionError(f"{timestamp} is never resolved: {self.progress.frontier}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapped(Component[Any]):
    wraps: Mapping[str, Callable[[Any], Any]]

    def load(self, part: str, base: type) -> Any:
        real, wrap = Component.load(self, part, base), self.wraps.get(part, lambda opened: opened)
        return lambda context: wrap(real(context))


def wrapped(component: Component[Any], **wraps: Callable[[Any], Any]) -> Component[Any]:
    """Return *component* with what *wraps* makes of its parts, by their names, in this process."""
    return _Wrapped(registration=component.registration, values=component.values, wraps=wraps)
