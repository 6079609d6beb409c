"""PostgreSQL keeps every promise of a rangefeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from cdc_conformance.rangefeeds import CAPABILITIES, RangefeedConformance
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.writer import PostgresWriter
from cdc_testing.documented_role import documented
from cdc_testing.postgres import Sql
from psycopg import sql as text
from psycopg.conninfo import conninfo_to_dict

from cdc_core import SourceWriterContext


class ClosedDatabase:
    """The database takes no connections for a while, and ends those that it has."""

    def __init__(self, uri: str) -> None:
        self._database = str(conninfo_to_dict(uri)["dbname"])
        self._uri = uri.replace(f"/{self._database}", "/postgres")

    @contextmanager
    def broken(self) -> Iterator[None]:
        with psycopg.connect(self._uri, autocommit=True) as sql:
            self._allow(sql, "false")
            sql.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", [self._database]
            )
            try:
                yield
            finally:
                self._allow(sql, "true")

    def _allow(self, sql: Sql, answer: str) -> None:
        alter = text.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
        sql.execute(alter.format(text.Identifier(self._database), text.SQL(answer)))


@pytest.mark.usefixtures("usual_pace")
class TestPostgres(RangefeedConformance):
    rangefeed = "postgres"
    capabilities = frozenset(CAPABILITIES)

    @pytest.fixture
    def rangefeed_uri(self, database: str) -> str:
        return documented(database)

    @pytest.fixture
    def source_writer(self, database: str) -> Iterator[PostgresWriter]:
        writer = PostgresWriter(SourceWriterContext(uri=database, options=PostgresOptions()))
        yield writer
        writer.close()

    @pytest.fixture
    def rangefeed_options(self) -> Mapping[str, Any]:
        return {"scan_round": 0.05, "fetch_size": "256KB", "snapshot_wait": 15}

    @pytest.fixture
    def secret(self, postgres_server: EmbeddedPostgres) -> str:
        return postgres_server.password

    @pytest.fixture
    def unreachable_uri(self) -> str:
        return "postgresql://somebody:hush@127.0.0.1:1/nowhere"

    @pytest.fixture
    def created(self, database: str) -> Callable[[], object]:
        def look() -> object:
            with psycopg.connect(database) as sql:
                slots = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
                return sql.execute(f"{slots} UNION ALL SELECT pubname::text FROM pg_publication ORDER BY 1").fetchall()

        return look

    @pytest.fixture
    def cursor(self, sql: Sql, tables: tuple[str, str]) -> Iterator[Callable[[], Mapping[str, Any]]]:
        def make() -> Mapping[str, Any]:
            sql.execute(f"CREATE PUBLICATION p FOR TABLE {', '.join(tables)} WITH (publish_via_partition_root = true)")
            row = sql.execute("SELECT lsn::text FROM pg_create_logical_replication_slot('s', 'pgoutput')").fetchone()
            assert row is not None
            return {"cursor": row[0], "slot_name": "s", "publication_name": "p"}

        yield make
        sql.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 's'")

    @pytest.fixture
    def disturbance(self, database: str) -> ClosedDatabase:
        return ClosedDatabase(database)

    @pytest.fixture
    def patience_s(self) -> float:
        return 90.0  # the limit of steps without progress, on a machine that may be busy

    @pytest.fixture
    def large_slice_bytes(self) -> int:
        return 6_000_000

    @pytest.fixture
    def many_rows(self) -> int:
        return 300
