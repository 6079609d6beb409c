"""`cdc audit` at other destinations, envelopes and sources: what was lost is found there too, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_fixtures import Kafka, Registry
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock, losing

from cdc_core import Timestamp
from cdc_core.auditing.audit import Audit
from cdc_core.auditing.comparison import Figures
from cdc_core.auditing.delivered import Delivered, DeliveredFiles, DeliveredMessages

Found = dict[tuple[str, int], tuple[str, dict[str, Any]]]
TABLE = """
CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(12,3), d timestamptz, b bytea, j jsonb, e uuid, f float8, a int[])
"""
FILL = """
INSERT INTO t SELECT g, 'row ' || g, g / 8.0, '2026-01-31 12:00:00+00'::timestamptz + g * interval '1 second',
    decode(lpad(to_hex(g), 8, '0'), 'hex'), jsonb_build_object('g', g, 'ä', NULL), gen_random_uuid(), g / 7.0,
    ARRAY[g, NULL]
FROM generate_series(%s::int, %s::int) g
"""


class Audited:
    """A changefeed that takes a step whenever an audit asks its destination for marks."""

    def __init__(self, databases: Sequence[str], sink: str, directory: Path, **options: Any) -> None:
        source = databases[0] if len(databases) == 1 else databases
        format_ = options.pop("format_", "json")
        self._feed = resolved_feed(source, sink, "t", options=options, name=directory.name.lower(), format_=format_)
        self._databases = databases
        self._directory = directory
        self._engine = LocalEngine(self._feed, directory)

    def deliver(self) -> None:
        self._engine.until(max(clock(uri) for uri in self._databases))

    def audit(self) -> tuple[Found, Figures]:
        with pytest.MonkeyPatch.context() as patch:
            for delivered in (DeliveredFiles, DeliveredMessages):
                patch.setattr(delivered, "marks", self._stepping(delivered.marks))
            audit = Audit(self._feed, self._directory / "audit", at=None, wait_s=60.0, most_shown=100)
            found = {
                (each.table.database, each.key["id"]): (str(each.finding), dict(each.source))
                for each in audit.differences()
            }
        shutil.rmtree(self._directory / "audit")
        return found, audit.figures

    @contextmanager
    def running(self) -> Iterator[Audited]:
        self._engine.run()
        try:
            self.deliver()
            yield self
        finally:
            self._engine.close()

    def _stepping(self, marks: Callable[[Any], Sequence[Timestamp]]) -> Callable[[Delivered], Sequence[Timestamp]]:
        def step_first(delivered: Delivered) -> Sequence[Timestamp]:
            self._engine.step()
            return marks(delivered)

        return step_first


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute(TABLE)
    sql.execute(FILL, [1, 60])
    return sql


def lose(sql: Sql) -> None:
    """Make changes that the changefeed does not get: one of each kind."""
    with losing(sql):
        sql.execute("DELETE FROM t WHERE id = 1")
        sql.execute("UPDATE t SET f = 0.25 WHERE id = 2")
        sql.execute(FILL, [99, 99])


def assert_finds_what_is_lost(audited: Audited, sql: Sql, database: str) -> None:
    """Change rows, audit, lose changes, and audit again."""
    sql.execute("UPDATE t SET v = NULL, n = -n, j = '[1.50]', a = NULL WHERE id BETWEEN 10 AND 20")
    sql.execute("UPDATE t SET id = id + 1000 WHERE id = 30")
    sql.execute("DELETE FROM t WHERE id = 31")
    found, figures = audited.audit()
    assert (found, figures.rows) == ({}, 59)
    lose(sql)
    found, figures = audited.audit()
    assert found == {
        (database, 1): ("extra", {}),
        (database, 2): ("different", {"f": 0.25}),
        (database, 99): ("missing", {}),
    }
    assert figures.rows == 59


ENRICHED = {"envelope": "enriched", "enriched_properties": "source"}


@pytest.mark.parametrize(
    "envelope", [pytest.param({}, id="wrapped"), pytest.param(ENRICHED, id="enriched", marks=pytest.mark.slow)]
)
def test_avro_in_kafka_is_read_with_the_schemas_of_its_registry(
    envelope: Mapping[str, Any],
    database: str,
    sql: Sql,
    tmp_path: Path,
    kafka_broker: Kafka,
    schema_registry: Registry,
    topic_prefix: str,
) -> None:
    options = {
        "format_": "avro",
        **envelope,
        "topic_prefix": topic_prefix,
        "topic_partitions": 2,
        "confluent_schema_registry": schema_registry.url,
    }
    sink = f"kafka://{kafka_broker.bootstrap_servers}"
    with Audited([database], sink, tmp_path, **options).running() as audited:
        assert_finds_what_is_lost(audited, sql, database.rpartition("/")[2].partition("?")[0])


def test_avro_in_the_envelope_enriched_is_read_from_files(database: str, sql: Sql, tmp_path: Path) -> None:
    """JSON in this envelope is in the next test."""
    sink = f"file://{tmp_path}/out"
    with Audited([database], sink, tmp_path, format_="avro", **ENRICHED).running() as audited:
        assert_finds_what_is_lost(audited, sql, database.rpartition("/")[2].partition("?")[0])


def test_all_shards_are_read_also_in_the_envelope_enriched(
    database: str, sql: Sql, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        other = stack.enter_context(fresh_database(postgres_server))
        second = stack.enter_context(psycopg.connect(other, autocommit=True))
        second.execute(TABLE)
        second.execute(FILL, [101, 130])
        sink = f"file://{tmp_path}/out"
        audited = stack.enter_context(Audited([database, other], sink, tmp_path, **ENRICHED).running())
        second.execute("UPDATE t SET v = 'changed' WHERE id < 110")
        sql.execute("DELETE FROM t WHERE id = 5")
        found, figures = audited.audit()
        assert (found, figures.rows) == ({}, 89)
        lose(second)
        second.execute("DELETE FROM t WHERE id = 99")
        lose(sql)
        found, _ = audited.audit()
        assert {key: each for (_, key), each in found.items()} == {
            1: ("extra", {}),
            2: ("different", {"f": 0.25}),
            99: ("missing", {}),
        }
