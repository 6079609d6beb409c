"""Real servers for tests, and what belongs to them."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing import spark_archive
from cdc_testing.copied_postgres import QUIET, CopiedPostgres
from cdc_testing.documented_role import grant_database
from cdc_testing.gcs_gate import GcsGate
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.object_stores import Azurite, FakeGcs, SeaweedFS
from cdc_testing.versions import UnavailableError, binaries_of

if TYPE_CHECKING:
    from cdc_testing.thread_host import KeptThreads

    from cdc_core.store.progress import ProgressStore

TESTS = Path(__file__).parents[1]
_STRATEGIES_SINCE = 150000
_numbers = itertools.count(1)


def pytest_configure() -> None:
    spark_archive.use()


@pytest.fixture(scope="session")
def workers_find_the_tests() -> Iterator[None]:
    """Python workers inherit the environment of the JVM, not `sys.path`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def kept_spark(workers_find_the_tests: None) -> Iterator[KeptSpark]:
    """A Spark that runs in this process share."""
    spark = KeptSpark()
    yield spark
    spark.close()


@pytest.fixture(scope="session")
def kept_threads() -> KeptThreads:
    """For runs in this process to which it does not matter that Spark has them."""
    from cdc_testing.thread_host import KeptThreads

    return KeptThreads()


@pytest.fixture(scope="session")
def marks_of_idle_tables() -> Iterator[None]:
    """In this process a changefeed of PostgreSQL without changes is resolved soon, not once a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cdc_rangefeed_postgres.planner._IDLE_NS", 10_000_000)
        yield


@pytest.fixture(scope="session")
def postgres_server(marks_of_idle_tables: None) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL for the whole session. Tests take a `database` of it; those that kill a server start their own."""
    with CopiedPostgres(settings={**QUIET, "max_connections": "200", "shared_buffers": "16MB"}) as server:
        # Each database is a copy, also of the catalog cache that the first connection to one writes.
        psycopg.connect(server.uri("template1")).close()
        yield server


@pytest.fixture
def database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """URI of a fresh database for who prepares a test, dropped with its slots at the end. See `documented`."""
    with fresh_database(postgres_server) as uri:
        yield uri


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    """A store in a file, which is not there yet."""
    from cdc_core.store.progress import ProgressStore, store_url

    with closing(ProgressStore(store_url(tmp_path / "state"))) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a store in a file, and of one in PostgreSQL."""
    from cdc_core.store.opening import store_url

    return store_url(tmp_path / "state") if request.param == "sqlite" else str(request.getfixturevalue("database"))


@pytest.fixture
def sql(database: str) -> Iterator[psycopg.Connection]:
    """A connection to the test's own database in autocommit mode."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def taken() -> Iterator[str]:
    """An address of this host at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def fresh_database(postgres_server: EmbeddedPostgres, *, kind: str = "") -> Iterator[str]:
    """Yield the URI of a fresh database, dropped with its slots at the end: for what several tests share.

    *kind* are further options of CREATE DATABASE.
    """
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres_server.uri(), autocommit=True) as connection:
        # Without fsync a checkpoint costs nothing, and copying files costs half of what logging each page does.
        strategy = "STRATEGY file_copy" if connection.info.server_version >= _STRATEGIES_SINCE else ""
        connection.execute(f"CREATE DATABASE {name} OWNER postgres {strategy} {kind}")
        grant_database(connection, name)
        yield postgres_server.uri(name)
        connection.execute(
            "SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> pg_backend_pid()",
            [name],
        )
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
        for (slot,) in connection.execute(slots, [name]).fetchall():
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres_version() -> Iterator[Callable[[int], EmbeddedPostgres]]:
    """Returns a running server of a major version, one for the session; skips the test where there is none."""
    servers: dict[int, EmbeddedPostgres] = {}
    with ExitStack() as stack:

        def server_of(major: int) -> EmbeddedPostgres:
            if major not in servers:
                try:
                    binaries = binaries_of(major)
                except UnavailableError as error:
                    pytest.skip(str(error))
                servers[major] = stack.enter_context(CopiedPostgres(settings=QUIET, binaries=binaries))
            return servers[major]

        yield server_of


__all__: list[str] = []


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedFS]:
    """An S3 store for the whole session. Tests that change it restore it, or start their own."""
    with SeaweedFS() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_gate() -> Iterator[GcsGate]:
    """A Google Cloud Storage that checks tokens, for the whole session."""
    with FakeGcs() as server, GcsGate(server) as gate:
        yield gate


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """An Azure Blob Storage for the whole session."""
    with Azurite() as server:
        yield server


_PROPERTY = "counts"


class Counts(Protocol):
    """Takes note of numbers by name: `counts(rows=17, kills=3)`."""

    def __call__(self, **numbers: int) -> None: ...


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Counts:
    """Numbers given to this stand in the log's summary, one line for each test."""

    def note(**numbers: int) -> None:
        record_property(
            _PROPERTY, ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in numbers.items())
        )

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted."""
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {value}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("counts")
        for line in lines:
            terminalreporter.write_line(line)
