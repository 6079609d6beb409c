"""The messages of a changefeed as they come, for whoever iterates over them."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve_without_sink
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.routing import Routing
from cdc_core.encoder import Encoder
from cdc_core.engine.temporary_run import TemporaryRun, temporary
from cdc_core.errors import BadRowError, ConfigError
from cdc_core.plugins.host import PluginHost
from cdc_core.rows import RowBatch
from cdc_core.schema import TableSchema
from cdc_core.timestamp import Timestamp
from cdc_core.watching.evaluation import evaluation_of

_BATCH_ROWS = 1000


class WatchedRow(NamedTuple):
    """A message, as from a changefeed without a sink in CockroachDB. A resolved mark has neither table nor key.

    `value` is None for a deleted row if the envelope uses tombstones.
    """

    table: str | None
    key: bytes | None
    value: bytes | None


class Watch(Iterator[WatchedRow]):
    """The messages of a changefeed without a sink, one after another; see `cdc_core.watch`.

    Nothing is read at the source before the first message is requested, and nothing beyond the messages that were
    taken: a slow consumer holds back the changefeed. The changefeed ends with `close`, with a `with` block, with this
    object, or with the process. Only one thread may use a watch, except for `close`.
    """

    def __init__(self, feed: ResolvedChangefeed, *, looked_at: bool = False) -> None:
        """With *looked_at*, the messages are only shown to people, so schemas are looked up in a registry, not
        registered.

        Raises: ConfigError if the source cannot be watched.
        """
        self._run = _Run(temporary(feed), looked_at=looked_at)
        self._batches = self._run.batches()
        self._rows = self._each()
        self._finalizer = weakref.finalize(self, _end, self._run, self._batches)

    def __next__(self) -> WatchedRow:
        return next(self._rows)

    def batches(self) -> Iterator[Sequence[WatchedRow]]:
        """Yield the messages in batches of those available at the same time, instead of one by one."""
        return self._batches

    def close(self) -> None:
        """End the changefeed, leaving nothing behind. May be called twice, and while another thread waits for a row;
        that thread then gets no more rows.
        """
        _end(self._run, self._batches)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _each(self) -> Iterator[WatchedRow]:
        batches = self._batches
        return (row for batch in batches for row in batch)


def watch(
    changefeed: Changefeed | None = None,
    *,
    source: str | Sequence[str] | None = None,
    tables: Sequence[str] = (),
    query: str | None = None,
    format: str = "json",  # noqa: A002 - the name that it has in a changefeed
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Watch:
    """Return the messages of a changefeed as they arrive, without a sink and without saved progress.

    The changefeed is *changefeed*, whose sink is not used, or one for *tables* or a *query* at *source*. It begins with
    the rows that the tables hold, unless the option `initial_scan` says otherwise, and ends by itself with
    `initial_scan = "only"` or an `end_time`. After a failure that is retried, rows may be repeated. Nothing remains at
    the source. With a schema registry, schemas are registered permanently, because otherwise no reader could decode the
    messages. A query needs Spark; whole tables do not.

    Raises: ConfigError at once, for options that cannot work, or with the first row, for problems that only the source
    can report. Later, BadRowError or EncodeError for a row that cannot be delivered, and the source's errors.
    """
    if changefeed is None:
        if source is None:
            raise ConfigError("watch() needs a changefeed, or a source with tables or a query")
        uris = source if isinstance(source, str) else tuple(source)
        changefeed = Changefeed(
            name="watch", source=uris, tables=tuple(tables), query=query, format=format, options=options
        )
    elif source is not None or tables or query is not None or options or format != "json":
        raise ConfigError("watch() takes a changefeed or its parts, not both")
    return Watch(resolve_without_sink(changefeed, PluginHost.load()))


class _Run:
    """The run of one watch. It does not know the watch, so that the watch can be forgotten while it runs."""

    def __init__(self, feed: ResolvedChangefeed, *, looked_at: bool) -> None:
        self._feed = feed
        self._context = replace(Parts(feed).encoder_context(), preview=looked_at)
        self._topics = Parts(feed).sink_context().topics()
        self._first_topic = ""
        self._run: TemporaryRun | None = None
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        if self._run is not None:
            self._run.stop()

    def batches(self) -> Generator[Sequence[WatchedRow]]:
        encoder, routing = self._opened_encoder(), Routing(_any_topic)
        with evaluation_of(self._feed) as evaluation:
            self._run = run = TemporaryRun(self._feed, evaluation=evaluation, check=self._check)
            if self.stopped:
                return
            with closing(run.items()) as items:
                for item in items:
                    if isinstance(item, Timestamp):
                        mark = run.used(partial(encoder.encode_resolved, self._first_topic, item))
                        if mark is None:
                            return
                        yield [WatchedRow(None, None, mark)]
                        continue
                    for part in routing.parted(item) if isinstance(item, RowBatch) else (item,):
                        if isinstance(part, BadRow):
                            raise BadRowError(f"{part} cannot be delivered: {part.shown_reason}")
                        yield from self._encoded(encoder, part, run)
                        del part
                    del item

    def _encoded(self, encoder: Encoder, rows: RowBatch, run: TemporaryRun) -> Iterator[Sequence[WatchedRow]]:
        topic = self._topics.of_rows(rows)
        if not len(rows):
            return
        batch = run.used(partial(encoder.encode, rows, topic=topic))
        if batch is None:
            return
        for start in range(0, len(rows), _BATCH_ROWS):
            keys = batch.key.slice(start, _BATCH_ROWS).to_pylist()
            values = batch.value.slice(start, _BATCH_ROWS).to_pylist()
            yield [WatchedRow(topic, key, value) for key, value in zip(keys, values, strict=True)]

    def _check(self, schemas: Sequence[TableSchema]) -> None:
        named = [(schema, self._topics.of(schema.name)) for schema in schemas]
        tables: dict[str, TableSchema] = {}
        for schema, topic in named:
            other = tables.setdefault(topic, schema)
            if other is not schema and not self._topics.shared:
                raise ConfigError(
                    f"tables {other.name} and {schema.name} would have the same topic; {self._topics.remedy}"
                )
        self._first_topic = named[0][1]
        self._opened_encoder().check(named)

    def _opened_encoder(self) -> Encoder:
        opened: Encoder = self._feed.encoder.load("encoder", Encoder)(self._context)
        return opened


def _any_topic(_: str) -> None:
    """Accept each topic that a query gives: there is no sink to refuse it."""


def _end(run: _Run, batches: Generator[Sequence[WatchedRow]]) -> None:
    run.stop()
    with suppress(ValueError):  # another thread waits for a row; it ends the run before it returns
        batches.close()
