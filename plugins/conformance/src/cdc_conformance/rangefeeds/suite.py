"""The fixtures that all promises of a rangefeed share, each with a default."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, cast

import pytest

from cdc_conformance.components import registration_of
from cdc_conformance.promises import Conformance
from cdc_conformance.rangefeeds.driver import Feed
from cdc_conformance.rangefeeds.jobs import job_of
from cdc_conformance.workload import Workload
from cdc_core import RangefeedRegistration, SourceWriter, SourceWriterContext, StepLimit
from cdc_core.config.resolved import Job
from cdc_core.plugins.classes import load_class

__all__ = ["Disturbance", "MakeJob", "OpenFeed", "RangefeedSuite"]

_ROWS, _BYTES = 100_000, 32 << 20
"""A step's limit where a promise does not need another."""


class Disturbance(Protocol):
    """Cuts a source off from everybody and lets it come back."""

    def broken(self) -> AbstractContextManager[None]:
        """In the block the source answers nobody, and what was connected is not; after it all is well again."""


class MakeJob(Protocol):
    def __call__(
        self, *tables: str, uri: str | None = None, initial_scan: bool = True, before: bool = True, **options: Any
    ) -> Job:
        """Return a changefeed of *tables*, by default both of the suite's; *options* are those of the rangefeed."""


class OpenFeed(Protocol):
    def __call__(
        self, *tables: str, rows: int = ..., bytes_: int = ..., parallelism: int = 2, job: Job | None = None, **of: Any
    ) -> Feed:
        """Return a feed that is not started. *of* is what `make_job` takes; what it creates is dropped at the end."""


class RangefeedSuite(Conformance):
    """What a promise finds: a source, two tables of its own on it, somebody who writes to them, and feeds."""

    rangefeed: ClassVar[str | RangefeedRegistration] = ""
    """The rangefeed's registered name, or its registration."""

    # what a subclass says

    @pytest.fixture
    def rangefeed_uri(self) -> str:
        """URI of a source on which tables may be created."""
        pytest.fail(
            f"{type(self).__name__} does not say where its source is; override the fixture rangefeed_uri, which returns"
            " the URI of a database where tables can be created"
        )

    @pytest.fixture
    def rangefeed_options(self) -> Mapping[str, Any]:
        """Options of the rangefeed for every promise: short waits, small chunks."""
        return {}

    @pytest.fixture
    def tables(self) -> tuple[str, str]:
        """Two tables as a user of a changefeed writes them, which nothing else uses."""
        word = secrets.token_hex(4)
        return f"cdc_first_{word}", f"cdc_second_{word}"

    @pytest.fixture
    def missing_table(self) -> str:
        """A table that is not there."""
        return f"cdc_missing_{secrets.token_hex(4)}"

    @pytest.fixture
    def source_writer(
        self, registration: RangefeedRegistration, rangefeed_uri: str, rangefeed_options: Mapping[str, Any]
    ) -> Iterator[SourceWriter]:
        """Who writes to the source; by default what the rangefeed's registration names as its `writer`."""
        if not registration.writer:
            pytest.fail(
                f"rangefeed '{registration.name}' registers no writer, so nobody can change what it reads; name a "
                "SourceWriter in RangefeedRegistration.writer, or override the fixture source_writer"
            )
        job = job_of(registration, uri=rangefeed_uri, tables=("t",), options=rangefeed_options)
        owner = f"writer of {job.rangefeed.owner}"
        cls = load_class(registration.writer, owner=owner, base=SourceWriter, install_hint=registration.install_hint)
        writer: SourceWriter = cls(SourceWriterContext(uri=rangefeed_uri, options=job.rangefeed.parsed()))
        yield writer
        writer.close()

    @pytest.fixture
    def created(self) -> Callable[[], object]:
        """Tells what stands on the source because of changefeeds, as a value that can be compared."""
        pytest.fail("the capability 'inspection' needs the fixture created: a function that tells what is there")

    @pytest.fixture
    def unreachable_uri(self) -> str:
        """URI of a source that nobody answers at, and that is given up within a few seconds."""
        pytest.fail("the capability 'unreachable' needs the fixture unreachable_uri")

    @pytest.fixture
    def disturbance(self) -> Disturbance:
        """Who cuts the source off, see `Disturbance`."""
        pytest.fail("the capability 'disturbance' needs the fixture disturbance: `with disturbance.broken():`")

    @pytest.fixture
    def secret(self) -> str:
        """A secret that stands in the URI."""
        pytest.fail("the capability 'secret' needs the fixture secret: a part of rangefeed_uri that nobody may see")

    @pytest.fixture
    def forget(self) -> Callable[[], None]:
        """Makes the source forget all the history that it may; by default it does so by itself."""
        return lambda: None

    @pytest.fixture
    def large_slice_bytes(self) -> int:
        """How many bytes of rows make a slice that has to come in several batches."""
        return 18_000_000

    @pytest.fixture
    def many_rows(self) -> int:
        """How many rows of a hundred bytes take several steps when a step may have a tenth of them."""
        return 1000

    @pytest.fixture
    def patience_s(self) -> float:
        """How long is waited for what must come, such as the next reading of an idle source's clock."""
        return 20.0

    # what promises use

    @pytest.fixture
    def registration(self) -> RangefeedRegistration:
        return cast(RangefeedRegistration, registration_of(type(self), "rangefeed"))

    @pytest.fixture
    def workload(self, source_writer: SourceWriter, tables: tuple[str, str]) -> Iterator[Workload]:
        """Who writes to both tables and knows exactly what was committed. The same seed for every promise."""
        for table in tables:
            source_writer.create_table(table)
        workload = Workload(source_writer, tables, seed=1)
        yield workload
        workload.close()
        for table in tables:
            source_writer.drop_table(table)

    @pytest.fixture
    def make_job(
        self,
        registration: RangefeedRegistration,
        rangefeed_uri: str,
        rangefeed_options: Mapping[str, Any],
        tables: tuple[str, str],
        capabilities: frozenset[str],
    ) -> MakeJob:
        def make(
            *watched: str, uri: str | None = None, initial_scan: bool = True, before: bool = True, **options: Any
        ) -> Job:
            values = {
                "diff": before and "before_images" in capabilities,
                "mvcc_timestamp": "mvcc" in capabilities,
                "initial_scan": "yes" if initial_scan else "no",
                **rangefeed_options,
                **options,
            }
            return job_of(registration, uri=uri or rangefeed_uri, tables=watched or tables, options=values)

        return make

    @pytest.fixture
    def open_feed(
        self,
        workload: Workload,  # noqa: ARG002 - the tables are dropped after the feeds
        make_job: MakeJob,
        patience_s: float,
    ) -> Iterator[OpenFeed]:
        """Opens feeds of the workload's tables."""
        feeds: list[Feed] = []

        def open_(
            *watched: str,
            rows: int = _ROWS,
            bytes_: int = _BYTES,
            parallelism: int = 2,
            job: Job | None = None,
            **of: Any,
        ) -> Feed:
            made = job or make_job(*watched, **of)
            feed = Feed(
                lambda: made.open_rangefeed(parallelism=parallelism),
                limit=StepLimit(rows=rows, bytes=bytes_),
                tables=made.tables,
                patience_s=patience_s,
            )
            feeds.append(feed)
            return feed

        yield open_
        for feed in feeds:
            feed.abandon()
