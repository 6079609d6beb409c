"""What a real run tells: its events, with log_slow what is slow, and the way of changes that are traced."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

from cdc_core.store.progress import ProgressStore, store_url


@pytest.mark.slow
def test_a_run_tells_events_what_was_slow_and_what_is_traced(
    database: str, tmp_path: Path, kept_threads: KeptThreads
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO items SELECT generate_series(1, 100)")
    options = {"delay": "500ms", "log_slow": "300ms"}
    with Feed(tmp_path, database, ["items"], sink="null://", options=options) as feed:
        with closing(ProgressStore(store_url(feed.state))) as store:
            number = store.traces.ask("test", table="items", key="[42]", most=1, seconds=600)
        feed.once(kept_threads)
        with closing(ProgressStore(store_url(feed.state))) as store:
            found = store.events.read("test")[1:]
            traced = store.traces.load(number)
        assert [event.kind for event in found] == [
            "create_changefeed",
            "changefeed_started",
            "changefeed_emitted_bytes",
            "changefeed_succeeded",
        ]
        assert found[2].details["rows"] == 100
        assert found[2].details["bytes"] > 0
        assert traced is not None
        [change] = traced.values()
        assert (change.key, change.op) == ("[42]", "scan")
        assert {"planned", "read", "encoded", "emitted", "acknowledged", "saved"} <= change.moments.keys()
        assert "changefeed 'test': slow: slice" in feed.log()
        assert ".public.items) took" in feed.log()
