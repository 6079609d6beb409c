"""A source whose network accepts everything and answers nothing: the run notices, says so, and goes on afterwards."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.audit import audit
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.tcp_proxy import TcpProxy

from cdc_core.engine import source_probe


@pytest.mark.slow
def test_a_frozen_connection_ends_and_nothing_is_lost(
    database: str, tmp_path: Path, kept_spark: KeptSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_probe, "_SILENT_S", 5.0)
    monkeypatch.setattr(source_probe, "_EVERY_S", 0.5)
    with psycopg.connect(database, autocommit=True) as sql, TcpProxy(f"{database}?connect_timeout=2") as proxy:
        sql.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        sql.execute("INSERT INTO orders VALUES (0)")

        def freeze() -> None:
            feed.until("the scan arrives", lambda: '"id":0' in delivered(feed))
            proxy.cut()
            feed.until("it is noticed", lambda: "the source does not answer on a new connection" in feed.log())
            sql.execute("INSERT INTO orders VALUES (1)")
            proxy.mend()
            feed.until("the row arrives", lambda: '"id":1' in delivered(feed))

        with Feed(
            tmp_path, proxy.url, ["orders"], options={"max_retry_backoff": "2s", "min_checkpoint_frequency": "1s"}
        ) as feed:
            feed.during(kept_spark, freeze)
            feed.once(kept_spark)
            assert audit(feed.files, database, ["orders"]).passed


def delivered(feed: Feed) -> str:
    return "".join(path.read_text() for path in feed.files.rglob("*.ndjson")).replace(" ", "")
