"""No secret of a source's or sink's URI leaves the processes that need it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from cdc_testing.documented_role import ROLE
from cdc_testing.object_stores import BUCKET, S3_SECRET, SeaweedFS
from cdc_testing.runs import Feed
from cdc_testing.shown_secrets import shown_secrets

PASSWORD = "p4ss/w:rd with+signs"
SECRETS = (PASSWORD, S3_SECRET)


@pytest.fixture
def uri(database: str) -> str:
    parts = psycopg.conninfo.conninfo_to_dict(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders SELECT generate_series(1, 10)")
        connection.execute("DROP ROLE IF EXISTS vaultkeeper")
        connection.execute(f"CREATE ROLE vaultkeeper REPLICATION LOGIN PASSWORD '{PASSWORD}' IN ROLE {ROLE}")
    return f"postgresql://vaultkeeper:{quote(PASSWORD, safe='')}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def holders(directory: Path) -> list[str]:
    """Return the files below *directory* that hold a secret in any form, but for the user's own TOML."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "feed.toml"]
    return [str(path) for path in files if shown_secrets(path.read_bytes(), SECRETS)]


@pytest.mark.slow
def test_no_log_plan_event_or_store_holds_a_secret_even_after_errors(
    uri: str, database: str, seaweedfs: SeaweedFS, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.log.level": "INFO",
        "spark.ui.enabled": "false",
    }
    sink, fs = seaweedfs.uri("secrets"), seaweedfs.file_system()

    def last_resolved() -> str:
        return max((path for path in fs.find(f"{BUCKET}/secrets") if path.endswith(".RESOLVED")), default="")

    with Feed(tmp_path, uri, ["orders"], spark=spark, sink=sink, options={"retry_backoff": "100ms"}) as feed:
        feed.start()
        feed.until("a resolved mark", lambda: bool(last_resolved()))
        with psycopg.connect(database, autocommit=True) as connection:  # also not in errors
            connection.execute("ALTER ROLE vaultkeeper NOLOGIN")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'vaultkeeper'")
            feed.until("the failed attempt", lambda: "next attempt in" in feed.log())
            connection.execute("ALTER ROLE vaultkeeper LOGIN")
        seen = last_resolved()
        feed.until("a later resolved mark", lambda: last_resolved() > seen)
        seaweedfs.kill()
        try:
            feed.until("the failed upload", lambda: f"'{seaweedfs.endpoint}' cannot be reached" in feed.log())
        finally:
            seaweedfs.start()
        seen = last_resolved()
        feed.until("a mark after that", lambda: last_resolved() > seen)
        scratch = holders(tmp_path)  # Spark's checkpoint is there only while it runs
        feed.stop()
    assert scratch == []
    assert holders(tmp_path) == []
    shown = [path.read_text() for path in events.rglob("*") if path.is_file()]
    assert any("SparkListenerApplicationStart" in text for text in shown)
    with sqlite3.connect(next(feed.state.glob("*.sqlite"))) as store:
        dump = "\n".join(store.iterdump())
    store.close()
    assert "vaultkeeper:***@" in dump
    assert "s3://changefeeds/secrets" in dump
    assert shown_secrets(dump, SECRETS) == []
