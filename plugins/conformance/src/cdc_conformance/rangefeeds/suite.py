"""The fixtures of the rangefeed suite. Each has a default, except `rangefeed_uri`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, cast

import pytest

from cdc_conformance.components import UNOPENED_ENCODER, plugin_of, registration_of, unopened_sink
from cdc_conformance.promises import Conformance, constant, missing
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.workload import Workload
from cdc_core import Changefeed, RangefeedRegistration, SourceWriter, SourceWriterContext, StepLimit
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.host import PluginHost

_SINK = unopened_sink("cdc-none", output="messages")
CAPABILITIES: Mapping[str, str] = {
    "before_images": "It yields the row before each change if the option `diff` is set.",
    "mvcc": "It knows when each row was committed, also for rows of the initial scan.",
    "schema_changes": "It follows a table while columns are added and dropped.",
    "rescans": "It can rescan tables, or the rows that `id < 4` selects: its planner has `check_rescan` and"
    " `scan_again`.",
    "moves": "A stopped changefeed can be moved to another position: its rangefeed has `move`.",
    "multiple_slices": "It divides an initial scan into several slices that are read at the same time.",
    "forgets": "After `forget`, the source no longer has the released history, which proves that `release` works.",
    "cursors": "It starts at a cursor. The fixture `cursor` returns options with one.",
    "inspection": "The fixture `created` returns what the changefeed has created on the source.",
    "unreachable": "The fixture `unreachable_uri` names a source that does not answer.",
    "disturbance": "The source can be cut off and come back: `with disturbance.broken():`.",
    "secret": "The fixture `secret` is a secret in the source's URI.",
}
FIXTURES: Mapping[str, str] = {
    "cursors": "cursor",
    "inspection": "created",
    "unreachable": "unreachable_uri",
    "disturbance": "disturbance",
    "secret": "secret",
}
"""The fixture that a test class must override to declare a capability, if there is one."""
_ROWS, _BYTES = 100_000, 32 << 20
"""The default limit of a step."""
MakeChangefeed = Callable[..., ResolvedChangefeed]
"""The fixture `make_changefeed`."""
OpenFeed = Callable[..., Feed]
"""The fixture `open_feed`."""
Created = Callable[[], object]
"""The fixture `created`."""


def resolved_changefeed(
    registration: RangefeedRegistration,
    *,
    uri: str,
    tables: Sequence[str],
    options: Mapping[str, Any],
    name: str = "conformance",
    parallelism: int | None = None,
) -> ResolvedChangefeed:
    """Return a changefeed of *tables* that is ready to run. Raises: ConfigError for an invalid URI or option."""
    changefeed = Changefeed(
        name=name,
        source=uri,
        tables=tuple(tables),
        sink=f"{_SINK.name}://",
        format=UNOPENED_ENCODER.name,
        options=dict(options),
    )
    resolved = resolve(changefeed, PluginHost([plugin_of(registration, UNOPENED_ENCODER, _SINK)]))
    return resolved.for_attempt(feed_id=secrets.token_hex(6), epoch=1, parallelism=parallelism)


def open_writer(changefeed: ResolvedChangefeed, uri: str) -> SourceWriter:
    """Return a new writer to the source at *uri*. The rangefeed of *changefeed* registers it."""
    component = changefeed.rangefeed
    writer: type[SourceWriter] = component.load("writer", SourceWriter)
    return writer(SourceWriterContext(uri=uri, options=component.parsed()))


class Disturbance(Protocol):
    """Cuts off a source and lets it come back."""

    def broken(self) -> AbstractContextManager[None]:
        """Within the block the source does not answer and open connections fail; afterwards it works again."""


class RangefeedSuite(Conformance):
    """What every promise gets: a source, two new tables on it, a writer to them, and feeds."""

    rangefeed: ClassVar[str | RangefeedRegistration] = ""
    """The rangefeed's registered name, or its registration."""

    # to override

    @pytest.fixture
    def rangefeed_uri(self) -> str:
        """The URI of a source on which tables may be created."""
        pytest.fail(
            f"{type(self).__name__} has no source: override the fixture rangefeed_uri and return the URI of a database "
            "in which tables can be created"
        )

    rangefeed_options = constant({})
    """Options of the rangefeed for every promise, such as short waits and small chunks."""

    @pytest.fixture
    def tables(self) -> tuple[str, str]:
        """The names of two tables, as a user of a changefeed writes them. Nothing else may use these tables."""
        word = secrets.token_hex(4)
        return f"cdc_first_{word}", f"cdc_second_{word}"

    @pytest.fixture
    def first_table(self, tables: tuple[str, str]) -> str:
        """The first of them."""
        return tables[0]

    @pytest.fixture
    def missing_table(self) -> str:
        """The name of a table that does not exist."""
        return f"cdc_missing_{secrets.token_hex(4)}"

    @pytest.fixture
    def source_writer(
        self, registration: RangefeedRegistration, rangefeed_uri: str, rangefeed_options: Mapping[str, Any]
    ) -> Iterator[SourceWriter]:
        """Writes to the source; by default an instance of the registered `writer`."""
        if not registration.writer:
            pytest.fail(
                f"rangefeed '{registration.name}' registers no writer, so the suite cannot change its source: name a "
                "SourceWriter in RangefeedRegistration.writer, or override the fixture source_writer"
            )
        changefeed = resolved_changefeed(registration, uri=rangefeed_uri, tables=("t",), options=rangefeed_options)
        writer = open_writer(changefeed, rangefeed_uri)
        yield writer
        writer.close()

    created = missing("the capability 'inspection' needs the fixture created: a function that returns what was created")
    """Returns what changefeeds have created on the source, as a value that can be compared."""
    cursor = missing("the capability 'cursors' needs the fixture cursor: a function that returns options with a cursor")
    """Returns the options of a changefeed that begins at the moment of the call: `cursor`, and what it needs."""
    unreachable_uri = missing("the capability 'unreachable' needs the fixture unreachable_uri")
    """The URI of a source that does not answer. A connection to it must fail within a few seconds."""
    disturbance = missing("the capability 'disturbance' needs the fixture disturbance: `with disturbance.broken():`")
    """Cuts off the source; see `Disturbance`."""
    secret = missing("the capability 'secret' needs the fixture secret: the secret part of rangefeed_uri")
    """A secret in `rangefeed_uri`."""
    forget = constant(lambda: None)
    """Makes the source discard all history that it may discard; by default the source does that by itself."""
    large_slice_bytes = constant(18_000_000)
    """A number of bytes so large that a slice of this size must be read in several batches."""
    many_rows = constant(1000)
    """A number of rows of 100 bytes that takes several steps if a step may hold a tenth of them."""
    patience_s = constant(20.0)
    """How long to wait for an expected step, such as the next one of an idle source."""
    # for the promises

    @pytest.fixture
    def registration(self) -> RangefeedRegistration:
        return cast(RangefeedRegistration, registration_of(type(self), "rangefeed"))

    @pytest.fixture
    def workload(self, source_writer: SourceWriter, tables: tuple[str, str]) -> Iterator[Workload]:
        """Writes to both tables and knows exactly what was committed. Every promise gets the same seed."""
        for table in tables:
            source_writer.create_table(table)
        workload = Workload(source_writer, tables, seed=1)
        yield workload
        workload.close()
        for table in tables:
            source_writer.drop_table(table)

    @pytest.fixture
    def make_changefeed(
        self,
        registration: RangefeedRegistration,
        rangefeed_uri: str,
        rangefeed_options: Mapping[str, Any],
        tables: tuple[str, str],
    ) -> MakeChangefeed:
        """Makes a changefeed of the tables that it is given, by default both, with a name that no other one has.

        The other *options* are those of the rangefeed.
        """

        def make(
            *watched: str,
            name: str | None = None,
            uri: str | None = None,
            initial_scan: bool = True,
            before: bool = True,
            parallelism: int = 2,
            **options: Any,
        ) -> ResolvedChangefeed:
            values = {
                "diff": before and "before_images" in self.capabilities,
                "mvcc_timestamp": "mvcc" in self.capabilities,
                "initial_scan": "yes" if initial_scan else "no",
                **rangefeed_options,
                **options,
            }
            return resolved_changefeed(
                registration,
                uri=uri or rangefeed_uri,
                tables=watched or tables,
                options=values,
                name=name or f"conformance-{secrets.token_hex(3)}",
                parallelism=parallelism,
            )

        return make

    @pytest.fixture
    def open_feed(
        self,
        workload: Workload,  # noqa: ARG002 - the tables must be dropped after the feeds
        make_changefeed: MakeChangefeed,
        patience_s: float,
    ) -> Iterator[OpenFeed]:
        """Opens a feed, and starts it on request. What is not its limit goes to `make_changefeed`."""
        feeds: list[Feed] = []

        def open_(
            *watched: str,
            rows: int = _ROWS,
            bytes_: int = _BYTES,
            changefeed: ResolvedChangefeed | None = None,
            start: bool = False,
            **of: Any,
        ) -> Feed:
            made = changefeed or make_changefeed(*watched, **of)
            limit = StepLimit(rows=rows, bytes=bytes_)
            feed = Feed(Parts(made), limit=limit, tables=made.tables, patience_s=patience_s)
            feeds.append(feed)
            if start:
                feed.start()
            return feed

        yield open_
        for feed in feeds:
            feed.abandon()
