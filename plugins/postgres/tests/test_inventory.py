"""What changefeeds have created in a database: how it is listed, and how `cdc drop` removes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.feeding import Feed, feed_of
from cdc_testing.postgres import Sql

from cdc_core import SourceObjects
from cdc_core.cli.main import main
from cdc_core.store.progress import Progress, ProgressStore, store_url


@pytest.fixture(autouse=True)
def table(sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")


@pytest.fixture
def file(tmp_path: Path, database: str) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(
        f'[changefeed.test]\nsource = "{documented(database)}"\ntables = ["t"]\nsink = "file://{tmp_path}/out"\n'
    )
    return path


@pytest.fixture
def store(tmp_path: Path) -> ProgressStore:
    return ProgressStore(store_url(tmp_path / ".cdc"))


@pytest.fixture
def feed(database: str, store: ProgressStore) -> Iterator[Feed]:
    """A changefeed that was started and stopped, and that the store knows."""
    definition = {"source": documented(database), "tables": ["t"], "sink": "file:///out", "format": "json"}
    known = store.changefeeds.register("test", definition)
    with feed_of(database, "t", feed_id=known.feed_id) as feed:
        store.progress.save("test", store.changefeeds.begin_attempt("test"), Progress(token=feed.start()))
        feed.close()
        yield feed


def remaining(sql: Sql) -> list[str]:
    slots = "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
    return sorted(row[0] for row in sql.execute(f"{slots} UNION ALL SELECT pubname::text FROM pg_publication"))


def listed(feed: Feed) -> list[SourceObjects]:
    objects = list(feed.rangefeed.created())
    feed.rangefeed.close()
    return objects


def test_slots_and_publications_of_changefeeds_are_listed_and_no_others(database: str, sql: Sql, feed: Feed) -> None:
    sql.execute("CREATE PUBLICATION cdc_mine")
    sql.execute("CREATE PUBLICATION cdc_lost_0123456789ab")
    sql.execute("COMMENT ON PUBLICATION cdc_lost_0123456789ab IS 'changefeed Lost-'")
    sql.execute("CREATE PUBLICATION cdc_orders_202401011200")
    sql.execute("SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
    name = f"cdc_test_{feed.context.feed_id}"
    lost, alike, mine = listed(feed)
    assert lost == SourceObjects(
        name="cdc_lost_0123456789ab", changefeed="Lost-", feed_id="0123456789ab", kinds=("publication",)
    )
    assert (alike.name, alike.sure) == ("cdc_orders_202401011200", False)
    assert (mine.name, mine.changefeed, mine.feed_id, mine.sure) == (name, "test", feed.context.feed_id, True)
    assert mine.kinds == ("replication slot", "publication")
    assert mine.retained_bytes is not None
    assert mine.retained_bytes >= 0
    assert not mine.active
    sql.execute("SELECT pg_drop_replication_slot('other')")
    with psycopg.connect(documented(database), application_name=f"cdc/test/{feed.context.feed_id}/planner"):
        assert listed(feed)[2].active, "a slot is free between two steps"


def test_cdc_drop_removes_slot_and_publication(
    file: Path, store: ProgressStore, sql: Sql, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remaining(sql) == [f"cdc_test_{feed.context.feed_id}"] * 2
    assert main(["drop", str(file), "--yes"]) == 0
    assert remaining(sql) == []
    assert store.changefeeds.find("test") is None
    shown = capsys.readouterr().out
    assert f"cdc_test_{feed.context.feed_id} (replication slot and publication of changefeed 'test', " in shown


def test_a_store_is_cleaned_when_the_server_is_gone(
    file: Path, store: ProgressStore, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = "postgresql://u@127.0.0.1:1/d"
    file.write_text(file.read_text().replace(documented(database), gone))
    store.changefeeds.register("test", {"source": gone, "tables": ["t"], "sink": "file:///out", "format": "json"})
    assert main(["drop", str(file), "--yes"]) == 1
    assert "use --forget-only if the source no longer exists" in capsys.readouterr().err
    assert main(["drop", str(file), "--forget-only", "--yes"]) == 0
    assert store.changefeeds.find("test") is None


def test_orphans_are_dropped_except_those_in_use(
    database: str, tmp_path: Path, store: ProgressStore, sql: Sql, feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    used = "cdc_busy_aaaaaaaaaaaa"
    for name in (used, "cdc_lost_bbbbbbbbbbbb"):
        sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    sql.execute("CREATE PUBLICATION cdc_lost_bbbbbbbbbbbb")
    sql.execute("COMMENT ON PUBLICATION cdc_lost_bbbbbbbbbbbb IS 'changefeed Lost'")
    alike = "cdc_orders_202401011200"
    sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [alike])
    known = f"cdc_test_{feed.context.feed_id}"
    with psycopg.connect(documented(database), application_name="cdc/busy/aaaaaaaaaaaa/reader"):
        assert main(["drop", "--orphans", documented(database), "--state", str(tmp_path / ".cdc"), "--yes"]) == 0
    assert remaining(sql) == sorted([used, alike, known, known])
    shown = capsys.readouterr().out
    assert f"  in use, kept: {used} (replication slot of changefeed 'busy', retains " in shown
    assert "  dropped: cdc_lost_bbbbbbbbbbbb (replication slot and publication of changefeed 'Lost', retains " in shown
    assert f"  may belong to another program, kept unless you add --only {alike}: {alike} (replication slot" in shown
    assert main(["drop", "--orphans", documented(database), "--only", used, "--only", alike, "--yes"]) == 0
    assert remaining(sql) == [known, known]
