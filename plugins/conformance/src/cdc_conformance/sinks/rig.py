"""One changefeed into one place of the sink under test: opens sinks as the engine does, and reads what arrived."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

from cdc_conformance.sinks.crashing import Call, make_calls, run_and_die
from cdc_conformance.sinks.hosting import SOURCE, host_of
from cdc_conformance.sinks.matching import Matcher
from cdc_conformance.sinks.seen import Row, Seen, rows_of
from cdc_core import (
    Encoder,
    EncoderRegistration,
    Flushed,
    RowBatch,
    Sink,
    SinkContext,
    SinkReader,
    SinkRegistration,
    SliceInfo,
    TableSchema,
    Timestamp,
)
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import Job

__all__ = ["ReadBack", "SinkRig"]

ReadBack = Callable[[SinkContext], SinkReader]


class SinkRig:
    """Builds everything through `cdc_core.config.resolve`, so URI parameters and options are really parsed.

    Every sink that it opened is closed in the end, whatever became of it.
    """

    def __init__(
        self,
        registration: SinkRegistration,
        *,
        uri: str,
        format: str | EncoderRegistration,  # noqa: A002 (the option's name)
        options: Mapping[str, Any],
        read_back: ReadBack | None,
        other_processes: bool = True,
    ) -> None:
        self.registration = registration
        self.uri = uri
        self.options = dict(options)
        self.schemas: tuple[TableSchema, ...] = ()
        self._format = format if isinstance(format, str) else format.name
        self.host = host_of(registration, format)
        self._read_back = read_back
        self._name = f"feed-{secrets.token_hex(4)}"
        self._feed_id = secrets.token_hex(6)
        self._other_processes = other_processes
        self._open: list[Sink] = []
        self._abandoned: list[Sink] = []
        self._matcher: Matcher | None = None

    def job(
        self,
        *,
        epoch: int = 1,
        uri: str | None = None,
        parameters: Mapping[str, str] | None = None,
        full_table_name: bool = False,
    ) -> Job:
        """Return the changefeed over the tables that `start` was given, as run *epoch*.

        *parameters* are further options of the sink, in the place of those that it has already, however those are
        spelled in the URI.
        """
        options = {"updated": True, **({"full_table_name": True} if full_table_name else {}), **self.options}
        uri = self.uri if uri is None else uri
        if parameters:
            given = {name.lower() for name in parameters}
            options = {name: value for name, value in options.items() if name.lower() not in given}
            uri = _without(uri, given)
        for name, value in (parameters or {}).items():
            uri += f"{'&' if '?' in uri else '?'}{quote(name)}={quote(value)}"
        names = [schema.name for schema in self.schemas]
        changefeed = Changefeed(
            name=self._name,
            source=SOURCE,
            tables=[name.qualified for name in names] or ["public.orders"],  # type: ignore[arg-type]
            sink=uri,
            format=self._format,
            options=options,
        )
        return resolve(changefeed, self.host).with_run(feed_id=self._feed_id, epoch=epoch, table_names=names)

    def options_class(self) -> type:
        """Return the class of the sink's options."""
        return self.job().sink.load_options()

    @property
    def place(self) -> str:
        """The part of the URI that may be a path."""
        return self.uri.partition("://")[2].partition("?")[0]

    def uri_of_sink(self) -> str:
        """Return the URI with all of the sink's options in it, for those who know nothing of the changefeed."""
        job = self.job()
        return job.destination + (f"?{urlencode(job.sink.values)}" if job.sink.values else "")

    def start(self, *schemas: TableSchema) -> None:
        """Prepare the destination for tables, as the driver does once a run."""
        self.watch(*schemas)
        driver = self.open()
        driver.prepare()
        self.close(driver)

    def watch(self, *schemas: TableSchema) -> None:
        """Say which tables the changefeed has; a table may be given in several versions."""
        self.schemas = tuple({schema.name: schema for schema in schemas}.values())
        self._matcher = None

    def open(self, *, epoch: int = 1, around: Callable[[Encoder], Encoder] | None = None) -> Sink:
        """Return a new sink of run *epoch*, to be closed or abandoned; *around* stands between it and its encoder."""
        job = self.job(epoch=epoch)
        if around is None:
            sink = job.open_sink()
        else:
            context = self.context(epoch=epoch)
            sink = job.sink.load(Sink)(dataclasses.replace(context, encoder=around(context.encoder)))
        self._open.append(sink)
        return sink

    def close(self, sink: Sink) -> None:
        """Close a sink of `open`."""
        self._open.remove(sink)
        sink.close()

    def close_all(self) -> None:
        """Close what is open; failures of that are another promise's affair."""
        for sink in self._open:
            with contextlib.suppress(Exception):
                sink.close()
        self._open.clear()

    @contextlib.contextmanager
    def opened(self, *, epoch: int = 1) -> Iterator[Sink]:
        """Yield a sink that is closed when the block ends well."""
        sink = self.open(epoch=epoch)
        yield sink
        self.close(sink)

    def write(
        self, *batches: RowBatch, step: int = 0, index: int = 0, epoch: int = 1, planned_by: int | None = None
    ) -> Flushed:
        """Return what the flush said of one slice with *batches*, written by a sink of its own, closed."""
        self.expect(*batches)
        with self.opened(epoch=epoch) as sink:
            sink.begin(dataclasses.replace(self.slice_of(*batches, step=step, index=index), planned_by=planned_by))
            for batch in batches:
                sink.emit(batch)
            return sink.flush()

    def write_to(self, sink: Sink, *batches: RowBatch, step: int = 0, index: int = 0) -> Flushed:
        """Return what the flush said of one slice with *batches*."""
        self.begin(sink, *batches, step=step, index=index)
        for batch in batches:
            sink.emit(batch)
        return sink.flush()

    def begin(self, sink: Sink, *batches: RowBatch, step: int = 0, index: int = 0) -> None:
        """Begin the slice that *batches* will be; they are known to `read` from now on."""
        self.expect(*batches)
        sink.begin(self.slice_of(*batches, step=step, index=index))

    def slice_of(self, *batches: RowBatch, step: int = 0, index: int = 0) -> SliceInfo:
        """Return the slice that begins with the earliest row of *batches*."""
        lowest = min((row.updated for row in self.rows(*batches)), default=Timestamp(1))
        return self.slice_from(lowest, step=step, index=index)

    def slice_from(self, lower: Timestamp, *, step: int = 0, index: int = 0) -> SliceInfo:
        """Return the slice of rows from *lower* on."""
        return SliceInfo(step=step, index=index, lower=lower)

    def calls(self, *batches: RowBatch, step: int = 0) -> list[Call]:
        """Return the calls that write one slice with *batches*, up to its `flush`; `read` will know the rows."""
        self.expect(*batches)
        return [self.slice_of(*batches, step=step), *batches]

    def crash_after(self, *calls: Call) -> None:
        """Make *calls* of a sink in a process that dies when the last one returns.

        Where no other process can reach the destination, the sink is only left as it is.
        """
        if self._other_processes:
            run_and_die(self.job(), calls)
            return
        sink = self.open()
        self._open.remove(sink)
        self._abandoned.append(sink)
        make_calls(sink, calls)

    def keys(self, batch: RowBatch) -> list[bytes]:
        """Return the key of each row's message."""
        keys: list[bytes] = self.job().open_encoder().encode(batch, topic=self.topic(batch.schema)).key.to_pylist()
        return keys

    def resolve(self, timestamp: Timestamp, *, epoch: int = 1) -> None:
        """Emit a resolved mark as the coordinator does, from a sink of its own."""
        self.expect_mark(timestamp)
        with self.opened(epoch=epoch) as coordinator:
            coordinator.emit_resolved(timestamp)

    def rows(self, *batches: RowBatch) -> list[Row]:
        """Return the rows of *batches* as `read` finds them."""
        return [row for batch in batches for row in rows_of(batch, topic=self.topic(batch.schema))]

    def topic(self, schema: TableSchema) -> str:
        """Return the topic that the sink says a table has."""
        return self.matcher.topic(schema)

    def expect(self, *batches: RowBatch) -> None:
        """Have `read` know the rows of *batches*."""
        for batch in batches:
            self.matcher.expect(batch)

    def expect_mark(self, timestamp: Timestamp) -> None:
        """Have `read` know a resolved mark."""
        self.matcher.expect_mark(timestamp)

    def read(self) -> Seen:
        """Return what a consumer gets now."""
        with self.reader() as reader:
            return Seen(self.matcher.match(reader.read()))

    @contextlib.contextmanager
    def reader(self) -> Iterator[SinkReader]:
        """Yield a reader of what the sink makes visible."""
        assert self._read_back is not None, "nothing reads this sink back; such tests are skipped"
        reader = self._read_back(self.context())
        try:
            yield reader
        finally:
            reader.close()

    def context(self, *, epoch: int = 1) -> SinkContext:
        """Return what sinks and readers are built from."""
        job = self.job(epoch=epoch)
        return SinkContext(
            changefeed=job.name,
            epoch=job.epoch,
            uri=job.destination,
            options=job.sink.parsed(),
            encoder=job.open_encoder(),
            full_table_name=job.options.full_table_name,
            tables=job.table_names,
            feed_id=job.feed_id,
            format=job.encoder.name,
        )

    @property
    def matcher(self) -> Matcher:
        if self._matcher is None:
            job = self.job()
            self._matcher = Matcher(job, decoder=self.host.encoder(self._format).decoder)
        return self._matcher


def _without(uri: str, names: Collection[str]) -> str:
    """Return *uri* without the parameters of *names*, which are in lower case; the others stay as they are written."""
    place, _, query = uri.partition("?")
    kept = [part for part in query.split("&") if part and unquote(part.partition("=")[0]).lower() not in names]
    return f"{place}?{'&'.join(kept)}" if kept else place
