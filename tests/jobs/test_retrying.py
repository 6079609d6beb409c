"""A job for which nothing works is retrying, from its first failure until a step is saved again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import OWNER
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes

from cdc_core.store.reports import Report, reports
from cdc_core.telemetry import metrics


@pytest.mark.slow
def test_a_job_retries_until_a_step_is_saved_also_while_attempts_run(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        sql.execute("CREATE ROLE forgetful LOGIN REPLICATION PASSWORD 'secret'")
        sql.execute(f"GRANT {OWNER} TO forgetful")
        sql.execute(f"GRANT CREATE ON DATABASE {sql.info.dbname} TO forgetful")
        uri = re.sub("//[^@]*@", "//forgetful:secret@", database)
        with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
            seen: list[Report] = []

            def change(password: str) -> None:
                sql.execute(f"ALTER ROLE forgetful PASSWORD '{password}'")
                sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'forgetful'")

            def until(what: str, condition: Callable[[Report], bool]) -> Report:
                """Return what is seen when *condition* holds; `seen` has all that was seen before."""

                def look() -> bool:
                    seen.extend(reports(nodes.store))
                    return condition(seen[-1])

                nodes.eventually(what, look)
                return seen.pop()

            nodes.begin("one")
            nodes.create("orders", uri, ["public.orders"], f"file://{tmp_path / 'files'}", max_retry_backoff="1s")
            nodes.until_delivering("orders")
            change("another")
            until("it is retried", lambda found: found.state == "retrying")
            seen.clear()
            again = until("it has failed again", lambda found: bool(found.retrying and found.retrying.failures >= 4))
            assert again.retrying is not None
            assert "password authentication failed" in again.retrying.error
            change("secret")
            after = until("it is running", lambda found: found.state == "running")
            assert {found.state for found in seen} == {"retrying"}
            assert len({found.retrying.since for found in seen if found.retrying is not None}) == 1
            assert after.tally.value(metrics.STEPS) > again.tally.value(metrics.STEPS), "a step is saved"
