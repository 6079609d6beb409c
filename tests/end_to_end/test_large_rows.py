"""Rows of any size: the memory of every process while values of 20 and 150 MB go from PostgreSQL to a sink."""

from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest
from benchmarks.processes import Usage, watched
from cdc_testing.runs import Feed

pytestmark = pytest.mark.slow

MB = 1_000_000
JVM_AT_MOST = 700 * MB


def bytes_of(size: int) -> str:
    """Return an expression in SQL for *size* bytes that no compression makes smaller by much."""
    return f"(SELECT decode(string_agg(sha512(n::text::bytea)::text, ''), 'escape') FROM generate_series(1, {size // 130}) n)"


def peaks(feed: Feed) -> dict[str, int]:
    """Run to the end and return the largest process of each role, in bytes."""
    feed.start("--once")
    assert feed.process is not None
    with watched(feed.process.pid, every_s=0.1) as usage:
        assert feed.wait() == 0, feed.log_tail()
    found: dict[str, int] = Usage.peak_by_role(usage)
    sys.stderr.write(f"{ {role: peak // MB for role, peak in found.items()} }\n")
    return found


@pytest.mark.parametrize("format_", ["json", "avro", "parquet", "csv"])
def test_a_large_value_is_scanned_and_followed_within_bounded_memory(database: str, tmp_path: Path, format_: str) -> None:
    size = 150 * MB
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, body bytea)")
        connection.execute(f"ALTER TABLE items ALTER body SET STORAGE EXTERNAL")
        connection.execute(f"INSERT INTO items SELECT 1, 1, substr(body, 1, {size}) FROM (SELECT {bytes_of(size + 200)} AS body)")
        with Feed(tmp_path, database, ["items"], format_=format_) as feed:
            scan = peaks(feed)
            connection.execute("UPDATE items SET body = body || '\\x00'")
            log = peaks(feed)
    assert scan["jvm"] < JVM_AT_MOST and log["jvm"] < JVM_AT_MOST
    assert max(scan.values()) < 6 * size and max(log.values()) < 6 * size
