"""Two databases as one source keep the promises of a rangefeed that depend on real positions and clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from cdc_conformance.rangefeeds.history import History
from cdc_conformance.rangefeeds.lifecycle import Closing, Startup
from cdc_conformance.rangefeeds.rescans import Moves, Rescans
from cdc_conformance.rangefeeds.restarts import Restarts
from cdc_conformance.rangefeeds.suite import CAPABILITIES, FIXTURES
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_testing.documented_role import documented, grant_database
from cdc_testing.idle_shard import TwoPostgresWriters, other_shard, two_shards

from cdc_core import SourceWriterContext


@pytest.mark.slow
class TestShards(Startup, Rescans, Moves, Restarts, History, Closing):
    """test_simulated_conformance.py has all promises but rescans, with simulated databases."""

    kind = "rangefeed"
    known_capabilities = CAPABILITIES
    capability_fixtures = FIXTURES
    rangefeed = two_shards("postgres")
    # A position is of one database. `disturbance` and `inspection` ask about one, and test_shards.py about both.
    capabilities = frozenset(CAPABILITIES) - {"cursors", "disturbance", "inspection"}

    @pytest.fixture(autouse=True)
    def usual_pace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A test allows a thousand steps: most would be marks of the idle database, or log of neither database."""
        monkeypatch.setattr("cdc_rangefeed_postgres.planner._IDLE_NS", 1_000_000_000)
        monkeypatch.setattr("cdc_rangefeed_postgres.step_plans._MIN_ROW_BYTES", 1024)

    @pytest.fixture
    def rangefeed_uri(self, database: str, postgres_server: EmbeddedPostgres) -> Iterator[str]:
        other = other_shard(database)
        name = other.rpartition("/")[2]
        with psycopg.connect(postgres_server.uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER postgres")
            grant_database(connection, name)
            yield documented(database)
            slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            connection.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            connection.execute(slots, [name])
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @pytest.fixture
    def source_writer(self, rangefeed_uri: str, database: str) -> Iterator[TwoPostgresWriters]:
        writer = TwoPostgresWriters(SourceWriterContext(uri=database, options=PostgresOptions()))
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
