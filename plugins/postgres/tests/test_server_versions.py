"""Scan, log and restart on every supported version of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from cdc_rangefeed_postgres import log_slice
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.feeding import started
from cdc_testing.postgres import Sql, table_of, writing
from cdc_testing.versions import MAJORS

from cdc_core import Op

SMALL_ROUNDS = {"scan_round": 0.1, "scan_chunk_size": 100_000}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("major", "worth_bytes"),
    [*((major, 1) for major in MAJORS), *((major, log_slice.WORTH_BYTES) for major in (MAJORS[0], MAJORS[-1]))],
)
def test_scan_log_and_restart_replay_to_the_table(
    major: int,
    worth_bytes: int,
    postgres_version: Callable[[int], EmbeddedPostgres],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(log_slice, "WORTH_BYTES", worth_bytes)
    uri = postgres_version(major).uri()

    def write(connection: Sql, n: int) -> None:
        key = n * 7919 % 5000
        if n % 5 == 0:
            connection.execute("DELETE FROM t WHERE id = %s", [key])
        elif n % 7 == 0:
            connection.execute("UPDATE t SET id = 100000 + %s WHERE id = %s", [n, key])
        else:
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, 'new') ON CONFLICT (id) DO UPDATE SET n = excluded.n", [key, n]
            )

    with psycopg.connect(uri, autocommit=True) as sql:
        assert sql.info.server_version // 10000 == major
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric, pad text)")
        sql.execute("INSERT INTO t SELECT g, g / 8.0, repeat('x', 200) FROM generate_series(1, 4000) g")
        sql.execute("CREATE TABLE parts (id int PRIMARY KEY, v jsonb) PARTITION BY RANGE (id)")
        sql.execute("CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (100)")
        sql.execute("CREATE TABLE high PARTITION OF parts FOR VALUES FROM (100) TO (200)")
        sql.execute("INSERT INTO parts SELECT g, jsonb_build_object('g', g) FROM generate_series(90, 110) g")
        with started(uri, "t", "parts", options=SMALL_ROUNDS) as feed:
            with writing(uri, write, pause_s=0.005):
                feed.step()
                feed.restart()
                feed.scan()
            sql.execute("UPDATE parts SET id = 50 WHERE id = 105")
            feed.catch_up()
            assert feed.rows("public.t") == table_of(sql, "SELECT id, n::text, pad FROM t")
            assert set(feed.rows("public.parts")) == set(table_of(sql, "SELECT id, v FROM parts"))
            assert {change.op for change in feed.changes} == set(Op)
        assert sql.execute("SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'cdc%'").fetchall() == []
        sql.execute("DROP TABLE t, parts")
    assert "the log more slowly" not in caplog.text
