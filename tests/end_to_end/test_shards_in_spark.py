"""Two databases as one source under `cdc run`: killed, shown, and dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.fixtures import fresh_database
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.postgres import Sql, writing
from cdc_testing.runs import Feed

from cdc_core import Timestamp
from cdc_core.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture
def databases(postgres_server: EmbeddedPostgres) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(fresh_database(postgres_server)) for _ in range(2)]


def delivered(feed: Feed) -> dict[int, str]:
    """Return the last version of each row, by id."""
    found: dict[int, tuple[Timestamp, str]] = {}
    for path in sorted(feed.files.rglob("*.ndjson")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            version = (Timestamp.parse(row["updated"]), row["after"]["note"])
            found[row["after"]["id"]] = max(found.get(row["after"]["id"], version), version)
    return {id_: note for id_, (_, note) in found.items()}


def test_a_killed_run_of_two_shards_loses_nothing(
    databases: list[str], tmp_path: Path, kept_spark: KeptSpark, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(sql: Sql, count: int) -> None:
        sql.execute("UPDATE items SET note = %s WHERE id %% 500 = %s", [str(count), count % 500])
        sql.execute("SELECT pg_sleep(0.05)")

    def shown(*options: str) -> str:
        capsys.readouterr()
        assert main(["show", str(feed.toml), "test", "--state", str(feed.state), *options]) == 0
        return capsys.readouterr().out

    with ExitStack() as stack:
        shards = [stack.enter_context(psycopg.connect(uri, autocommit=True)) for uri in databases]
        for number, sql in enumerate(shards):
            sql.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
            sql.execute("INSERT INTO items SELECT n * 2 + %s, '' FROM generate_series(1, 20000) n", [number])
        options = {"scan_round": "500ms", "max_step_bytes": "8MB"}
        feed = stack.enter_context(Feed(tmp_path, databases, ["items"], options=options))
        assert main(["check", str(feed.toml)]) == 0
        assert "public.items: 2 columns, key id" in capsys.readouterr().out
        with writing(databases[0], write, writers=1), writing(databases[1], write, writers=1):
            feed.start()
            feed.until("more files", lambda: len(list(feed.files.rglob("*.ndjson"))) > 3)
        feed.kill_driver()
        feed.once(kept_spark)
        held = {id_: note for sql in shards for id_, note in sql.execute("SELECT id, note FROM items").fetchall()}
        assert delivered(feed) == held
        found: dict[str, Any] = json.loads(shown("--json"))
        assert [each["source"].rpartition("/")[2] for each in found["shards"]] == [
            uri.rpartition("/")[2] for uri in databases
        ]
        assert all(each["behind_s"] >= 0 for each in found["shards"])
        assert shown().count("s behind") == 2, "a complete changefeed is not behind"
        assert main(["drop", str(feed.toml), "--state", str(feed.state), "--yes"]) == 0
        slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        assert [sql.execute(slots).fetchone() for sql in shards] == [(0,), (0,)]
