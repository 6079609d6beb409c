"""One changefeed into one place of the sink under test: opens the sink as the engine does, and reads what arrived."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode

import pyarrow as pa

from cdc_conformance.components import SOURCE, UNOPENED_SOURCE, installed_and
from cdc_conformance.rows import INT8, TEXT, Change, rows, table
from cdc_conformance.sinks.crashing import Call, make_calls, run_and_die
from cdc_conformance.sinks.seen import Matcher, Row, Seen, rows_of
from cdc_core import (
    Changefeed,
    Destination,
    Encoder,
    EncoderRegistration,
    Flushed,
    ResolvedSink,
    RowBatch,
    Sink,
    SinkContext,
    SinkReader,
    SinkRegistration,
    SliceInfo,
    TableSchema,
    Timestamp,
)
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed

ORDERS = table("orders", {"id": INT8, "note": TEXT})
WIDER_ORDERS = table("orders", {"id": INT8, "note": TEXT, "added": INT8}, version=2)
"""The same table after a column was added."""
USERS = table("users", {"id": INT8, "note": TEXT})
AT = Timestamp(1_700_000_000_000_000_000)
"""When the first row of a test is written."""
ReadBack = Callable[[SinkContext], SinkReader]
Part = Sink | ResolvedSink | Destination
P = TypeVar("P", Sink, ResolvedSink, Destination)


def versions(keys: Iterable[int], *, at: int = 0, schema: TableSchema = ORDERS, note: str = "") -> RowBatch:
    """Return one version of each of *keys*, in order. The first is written *at* nanoseconds after AT."""
    changes = [Change({"id": key, "note": f"{note}{key} at {at}"}) for key in keys]
    return rows(schema, changes, start=Timestamp(AT.wall + at))


class SinkRig:
    """Builds everything through `cdc_core.config.resolve`, so that URI parameters and options are really parsed.

    `close_all` closes every part that it opened.
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
        self.host = installed_and(UNOPENED_SOURCE, registration, *([] if isinstance(format, str) else [format]))
        self._format = format if isinstance(format, str) else format.name
        self._read_back = read_back
        self._name = f"feed-{secrets.token_hex(4)}"
        self._feed_id = secrets.token_hex(6)
        self._other_processes = other_processes
        self._feeds: dict[tuple[Any, ...], ResolvedChangefeed] = {}
        self._open: list[Part] = []
        self._abandoned: list[Sink | ResolvedSink] = []
        self._matcher: Matcher | None = None

    # the changefeed

    def start(self, *schemas: TableSchema) -> None:
        """Prepare the destination for tables, as the driver does before a run."""
        self.watch(*schemas)
        with self.closing(self.open_destination()) as destination:
            destination.prepare()

    def watch(self, *schemas: TableSchema) -> None:
        """Set the tables of the changefeed. A table may be given in several versions."""
        self.schemas = tuple({schema.name: schema for schema in schemas}.values())
        self._matcher = None

    def feed(
        self, *, epoch: int = 1, uri: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> ResolvedChangefeed:
        """Return attempt *epoch* of the changefeed.

        *parameters* are options of the sink in its URI. They replace those that the URI and the options have already,
        in any spelling.
        """
        options = {"updated": True, **self.options}
        uri = self.uri if uri is None else uri
        if parameters:
            given = {name.lower() for name in parameters}
            options = {name: value for name, value in options.items() if name.lower() not in given}
            uri = _without(uri, given)
        for name, value in (parameters or {}).items():
            uri += f"{'&' if '?' in uri else '?'}{quote(name)}={quote(value)}"
        names = [schema.name for schema in self.schemas]
        known = uri, repr(options), tuple(names)
        if known not in self._feeds:
            changefeed = Changefeed(
                name=self._name,
                source=SOURCE,
                tables=[name.qualified for name in names] or ["public.orders"],  # type: ignore[arg-type]
                sink=uri,
                format=self._format,
                options=options,
            )
            self._feeds[known] = resolve(changefeed, self.host)
        return self._feeds[known].for_attempt(feed_id=self._feed_id, epoch=epoch, table_names=names)

    def options_class(self) -> type:
        """Return the class of the sink's options."""
        return self.feed().sink.load_options()

    @property
    def place(self) -> str:
        """The part of the URI that may be a path."""
        return self.uri.partition("://")[2].partition("?")[0]

    def full_uri(self) -> str:
        """Return the URI with all options of the sink as parameters."""
        feed = self.feed()
        return feed.destination + (f"?{urlencode(feed.sink.values)}" if feed.sink.values else "")

    # the parts of the sink

    def open_sink(self, *, epoch: int = 1, wrap_encoder: Callable[[Encoder], Encoder] | None = None) -> Sink:
        """Return a new sink of attempt *epoch*, which gets its encoder through *wrap_encoder*."""
        feed = self.feed(epoch=epoch)
        if wrap_encoder is None:
            return self._opened(Parts(feed).open_sink())
        context = Parts(feed).sink_context()
        context = dataclasses.replace(context, encoder=wrap_encoder(context.encoder))
        cls: type[Sink] = feed.sink.load("sink", Sink)
        return self._opened(cls(context))

    def open_resolved_sink(self, *, epoch: int = 1) -> ResolvedSink:
        return self._opened(Parts(self.feed(epoch=epoch)).open_resolved_sink())

    def open_destination(self, *, epoch: int = 1) -> Destination:
        return self._opened(Parts(self.feed(epoch=epoch)).open_destination())

    def close(self, part: Part) -> None:
        """Close a part that the rig opened."""
        self._open.remove(part)
        part.close()

    def close_all(self) -> None:
        """Close whatever is open. Errors of `close` belong to other promises."""
        for part in self._open:
            with contextlib.suppress(Exception):
                part.close()
        self._open.clear()

    @contextlib.contextmanager
    def closing(self, part: P) -> Iterator[P]:
        """Yield *part* and close it when the block ends without an error."""
        yield part
        self.close(part)

    def _opened(self, part: P) -> P:
        self._open.append(part)
        return part

    # what the engine does with them

    def write(self, *batches: RowBatch, epoch: int = 1, **place: Any) -> Flushed:
        """Write one slice with a new sink, close the sink, and return what `flush` returned."""
        with self.closing(self.open_sink(epoch=epoch)) as sink:
            return self.write_with(sink, *batches, **place)

    def write_with(self, sink: Sink, *batches: RowBatch, **place: Any) -> Flushed:
        """Write one slice with *sink* and return what `flush` returned."""
        self.emit(sink, *batches, **place)
        return sink.flush()

    def emit(self, sink: Sink, *batches: RowBatch, **place: Any) -> None:
        """Begin a slice and emit *batches*."""
        self.begin(sink, *batches, **place)
        for batch in batches:
            sink.emit(batch)

    def begin(self, sink: Sink, *batches: RowBatch, **place: Any) -> None:
        """Begin the slice that *batches* belong to. `read` recognizes their rows from now on."""
        self.expect(*batches)
        sink.begin(self.slice_of(*batches, **place))

    def slice_of(
        self, *batches: RowBatch, step: int = 0, index: int = 0, planned_by: int | None = None, task_attempt: int = 0
    ) -> SliceInfo:
        """Return the slice that starts with the earliest row of *batches*."""
        lower = min((row.updated for row in self.rows(*batches)), default=Timestamp(1))
        return SliceInfo(step=step, index=index, lower=lower, planned_by=planned_by, task_attempt=task_attempt)

    def resolve(self, timestamp: Timestamp) -> None:
        """Emit a resolved mark with a resolved sink of its own."""
        self.expect_mark(timestamp)
        with self.closing(self.open_resolved_sink()) as resolved_sink:
            resolved_sink.emit_resolved(timestamp)

    def calls(self, *batches: RowBatch, **place: Any) -> list[Call]:
        """Return the calls that write one slice, without its `flush`. `read` recognizes the rows from now on."""
        self.expect(*batches)
        return [self.slice_of(*batches, **place), *batches]

    def crash_after(self, *calls: Call) -> None:
        """Make *calls* in a process that dies when the last one returns.

        Where no other process can reach the destination, make them in this one and leave everything open.
        """
        if self._other_processes:
            run_and_die(self.feed(), calls)
        else:
            self._abandoned.append(make_calls(self.feed(), calls))

    # what arrived

    def topic(self, schema: TableSchema) -> str:
        """Return the topic of a table, as the destination names it."""
        return self.matcher.topic(schema)

    def routed(self, batch: RowBatch, *, like: TableSchema) -> RowBatch:
        """Return *batch* with the topic that a query would give its rows to reach that of table *like*."""
        names = Parts(self.feed()).sink_context().topics()
        topic = names.of(like.name).removeprefix(names.prefix)
        column = pa.repeat(pa.scalar(topic, pa.string()), len(batch))
        return dataclasses.replace(batch, batch=batch.batch.append_column("topic", column))

    def rows(self, *batches: RowBatch) -> list[Row]:
        """Return the rows of *batches* in the form in which `read` returns them."""
        return [row for batch in batches for row in rows_of(batch, topic=self.matcher.topic_of(batch))]

    def keys(self, batch: RowBatch) -> list[bytes]:
        """Return the message key of each row."""
        keys: list[bytes] = (
            Parts(self.feed()).open_encoder().encode(batch, topic=self.topic(batch.schema)).key.to_pylist()
        )
        return keys

    def expect(self, *batches: RowBatch) -> None:
        """Make `read` recognize the rows of *batches*."""
        for batch in batches:
            self.matcher.expect(batch)

    def expect_mark(self, timestamp: Timestamp) -> None:
        """Make `read` recognize a resolved mark."""
        self.matcher.expect_mark(timestamp)

    def read(self) -> Seen:
        """Return everything that a consumer sees now."""
        with self.reader() as reader:
            return Seen(self.matcher.match(reader.read()))

    @contextlib.contextmanager
    def reader(self) -> Iterator[SinkReader]:
        """Yield a reader of what the sink has made visible."""
        assert self._read_back is not None, "the suite skips this test where the sink has no reader"
        reader = self._read_back(Parts(self.feed()).sink_context())
        try:
            yield reader
        finally:
            reader.close()

    def assert_arrived(self, *batches: RowBatch, after: str, in_order: bool = False) -> Seen:
        """Return what a consumer sees when it has every row of *batches*. *after* is what has happened, in one clause.

        With *in_order*, also no row may arrive for the first time after a later version of its key. Raises:
        AssertionError that names the first row at fault.
        """
        __tracebackhide__ = True
        seen = self.read()
        missing = seen.missing(self.rows(*batches))
        assert not missing, f"{after}, but {missing}"
        wrong = seen.out_of_order() if in_order else ""
        assert not wrong, f"{after}, but {wrong}"
        return seen

    @property
    def matcher(self) -> Matcher:
        if self._matcher is None:
            self._matcher = Matcher(self.feed(), decoder=self.host.encoder(self._format).decoder)
        return self._matcher


def _without(uri: str, names: Collection[str]) -> str:
    """Return *uri* without the parameters of *names*, which are in lower case. The others stay as they are written."""
    place, _, query = uri.partition("?")
    kept = [part for part in query.split("&") if part and unquote(part.partition("=")[0]).lower() not in names]
    return f"{place}?{'&'.join(kept)}" if kept else place
