"""Several databases with the same tables as one source, on a real server, with the engine's own parts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import documented
from cdc_testing.fixtures import fresh_database
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock
from psycopg.conninfo import conninfo_to_dict

from cdc_core import Timestamp
from cdc_core.cli.main import main
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError, RestartError, RetryableError

TABLE = "CREATE TABLE items (id int PRIMARY KEY, note text)"


@pytest.fixture
def databases(postgres_server: EmbeddedPostgres) -> Iterator[tuple[str, str]]:
    """URIs of two fresh databases: two shards of one server."""
    with fresh_database(postgres_server) as first, fresh_database(postgres_server) as second:
        yield first, second


@pytest.fixture
def shards(databases: tuple[str, str]) -> Iterator[list[Sql]]:
    """Connections to the two databases, each with an empty table `items`."""
    with ExitStack() as stack:
        opened = [stack.enter_context(psycopg.connect(uri, autocommit=True)) for uri in databases]
        for sql in opened:
            sql.execute(TABLE)
        yield opened
        for sql in opened:  # a test may have opened others
            sql.close()


@contextmanager
def closed(uri: str) -> Iterator[None]:
    """The database takes no connections, and ends those that it has."""
    name = str(conninfo_to_dict(uri)["dbname"])
    with psycopg.connect(uri.replace(f"/{name}", "/postgres"), autocommit=True) as sql:
        sql.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
        sql.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            sql.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


def engine(sources: Sequence[str], directory: Path, *, tables: str = "items", **options: Any) -> LocalEngine:
    feed = resolved_feed(sources, f"file://{directory}/files", tables, options=options)
    return LocalEngine(feed, directory / "state")


def rows(directory: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(directory.rglob("*.ndjson")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def delivered(directory: Path) -> dict[int, str | None]:
    """Return the last version of each row, by id."""
    found: dict[int, tuple[Timestamp, str | None]] = {}
    for row in rows(directory):
        updated, note = Timestamp.parse(row["updated"]), row["after"]["note"]
        found[row["after"]["id"]] = max(found.get(row["after"]["id"], (Timestamp(), None)), (updated, note))
    return {id_: note for id_, (_, note) in found.items()}


def held(shards: Sequence[Sql]) -> dict[int, str | None]:
    return {id_: note for sql in shards for id_, note in sql.execute("SELECT id, note FROM items").fetchall()}


def going_on(feed: LocalEngine, until: Callable[[], bool]) -> None:
    """Take steps until the condition holds, as the supervisor would: an attempt that ends is followed by another."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if until():
            return
        try:
            feed.step()
        except RetryableError:
            feed.attempt()
    raise AssertionError(f"it never holds: {feed.progress.frontier}")


def resolved(feed: LocalEngine, databases: Sequence[str]) -> None:
    """Take steps until all that is committed by now is resolved."""
    now = max(map(clock, databases))
    going_on(feed, lambda: feed.high_water >= now)


def test_rows_of_all_shards_arrive_and_an_idle_shard_holds_nothing_back(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path
) -> None:
    for number, sql in enumerate(shards):
        sql.execute("INSERT INTO items SELECT n * 2 + %s, 'old' FROM generate_series(1, 500) n", [number])
    with closing(engine(databases, tmp_path)) as feed:
        feed.run()
        feed.until(max(map(clock, databases)))
        assert delivered(tmp_path) == held(shards)
        shards[0].execute("UPDATE items SET note = 'new' WHERE id < 100")  # the other one is idle
        shards[0].execute("INSERT INTO items VALUES (-1, 'more')")
        feed.until(max(map(clock, databases)))
        assert delivered(tmp_path) == held(shards)
    tables = {path.name.split("-")[-2] for path in tmp_path.rglob("*.ndjson")}
    assert tables == {"items"}


def test_each_shard_has_its_own_slot_and_drop_removes_all(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    feed = resolved_feed(databases, f"file://{tmp_path}/files", "items")
    with closing(LocalEngine(feed, tmp_path / "state")) as running:
        running.run()
        known = running.store.changefeeds.find("t")
        assert known is not None
        names = [sql.execute(slots).fetchall() for sql in shards]
        assert [len(found) for found in names] == [1, 1]
        assert names[0] != names[1]
        for uri in databases:
            capsys.readouterr()
            assert main(["drop", documented(uri), "--orphans", "--state", str(tmp_path / "state"), "--yes"]) == 0
            assert "there are no orphans" in capsys.readouterr().out
    feed = feed.for_attempt(feed_id=known.feed_id, epoch=9)
    with closing(Parts(feed).open_rangefeed()) as rangefeed:
        created = rangefeed.created()
        assert created is not None
        assert [entry.feed_id for entry in created] == [known.feed_id] * 2
        rangefeed.drop(running.progress.token)
    assert [sql.execute(slots).fetchall() for sql in shards] == [[], []]


@pytest.mark.parametrize(
    "restart", [pytest.param(False, id="reading"), pytest.param(True, id="starting", marks=pytest.mark.slow)]
)
def test_a_shard_that_is_away_holds_resolved_back_and_not_the_rows_of_the_others(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path, *, restart: bool
) -> None:
    with closing(engine(databases, tmp_path)) as feed:
        feed.run()
        feed.until(max(map(clock, databases)))
        shards[1].execute("INSERT INTO items VALUES (2, 'unread')")
        before = clock(databases[1])
        shards[1].close()
        with closed(databases[1]):
            if restart:
                feed.attempt()
            shards[0].execute("INSERT INTO items VALUES (1, 'read')")
            after = clock(databases[0])
            going_on(feed, lambda: delivered(tmp_path) == {1: "read"})
            assert feed.high_water < after
            known = feed.store.changefeeds.find("t")
            assert known is not None
            going_on(feed, lambda: (feed.store.changefeeds.find("t") or known).resolved[0] >= after)
            assert (feed.store.changefeeds.find("t") or known).resolved[1] <= before
        going_on(feed, lambda: feed.high_water >= after)
        assert delivered(tmp_path) == {1: "read", 2: "unread"}
    with psycopg.connect(databases[1]) as sql:
        row = sql.execute("SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint FROM items")
        committed = Timestamp(row.fetchall()[0][0] * 1000)
    late = next(row for row in rows(tmp_path) if row["after"]["id"] == 2)
    assert Timestamp.parse(late["updated"]) == committed  # not pushed behind what the other shard had reached


def test_a_shard_may_change_its_tables_first(databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path) -> None:
    for number, sql in enumerate(shards):
        sql.execute("INSERT INTO items VALUES (%s, 'old')", [number])
    with closing(engine(databases, tmp_path)) as feed:
        feed.run()
        feed.until(max(map(clock, databases)))
        shards[1].execute("ALTER TABLE items ADD COLUMN price int DEFAULT 7")
        for sql in shards:
            sql.execute("UPDATE items SET note = 'new'")
        resolved(feed, databases)
        feed.run()  # the tables may differ now
        assert [row["after"] for row in rows(tmp_path) if row["after"]["id"] == 0][-1] == {"id": 0, "note": "new"}
        assert [row["after"] for row in rows(tmp_path) if row["after"]["id"] == 1][-1] == {
            "id": 1,
            "note": "new",
            "price": 7,
        }
        shards[0].execute("ALTER TABLE items ADD COLUMN price int DEFAULT 8")
        shards[0].execute("UPDATE items SET note = 'newer'")
        resolved(feed, databases)
        last = [row["after"] for row in rows(tmp_path) if row["after"]["id"] == 0][-1]
        assert last == {"id": 0, "note": "newer", "price": 8}
    shapes: dict[str, set[tuple[str, ...]]] = {}
    for path in tmp_path.rglob("*.ndjson"):
        version = path.stem.rpartition("-")[2]
        shapes.setdefault(version, set()).update(
            tuple(json.loads(line)["after"]) for line in path.read_text().splitlines()
        )
    assert all(len(found) == 1 for found in shapes.values()), shapes


def test_a_table_joins_when_all_shards_have_it(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def found() -> list[tuple[int, str]]:
        return sorted((row["after"]["id"], row["after"]["note"]) for row in rows(tmp_path))

    with closing(engine(databases, tmp_path, tables="public.*")) as feed:
        feed.run()
        resolved(feed, databases)
        shards[1].execute("CREATE TABLE later (id int PRIMARY KEY, note text)")
        shards[1].execute("INSERT INTO later VALUES (1, 'first')")
        going_on(feed, lambda: found() == [(1, "first")])
        held_at = feed.high_water
        shards[0].execute("INSERT INTO items VALUES (2, 'meanwhile')")
        going_on(feed, lambda: found() == [(1, "first"), (2, "meanwhile")])
        assert feed.high_water == held_at
        name = databases[0].rpartition("/")[2]
        assert f"/{name} has no table public.later, but " in caplog.text
        shards[0].execute("CREATE TABLE later (id int PRIMARY KEY, note text)")
        resolved(feed, databases)
        tables = {span.table for span, _ in feed.progress.frontier}
        assert tables == {f"{name}.public.items", f"{name}.public.later"}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE items ALTER note TYPE varchar(9)", "column note of type text"),
        ("ALTER TABLE items ADD COLUMN price int", "no column price"),
        ("ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, note)", "the key id at"),
    ],
)
def test_a_check_names_the_shard_the_table_and_the_column_that_differ(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path, statement: str, said: str
) -> None:
    shards[1].execute(statement)
    with (
        closing(engine(databases, tmp_path)) as feed,
        pytest.raises(ConfigError, match=rf"table public\.items has {said}.*{databases[1].rpartition('/')[2]}"),
    ):
        feed.run()
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert [sql.execute(slots).fetchone() for sql in shards] == [(0,), (0,)]


def test_a_scan_only_feed_ends_with_the_scans_of_all_shards(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path
) -> None:
    shards[0].execute("INSERT INTO items VALUES (1, 'few')")
    shards[1].execute("INSERT INTO items SELECT n, repeat('x', 100) FROM generate_series(2, 5000) n")
    options: Mapping[str, Any] = {
        "initial_scan": "only",
        "updated": False,
        "resolved": False,
        "scan_chunk_size": "64KB",
        "max_step_bytes": "64KB",
    }
    with closing(engine(databases, tmp_path, **options)) as feed:
        feed.run()
        known = feed.store.changefeeds.find("t")
        assert known is not None
        going_on(feed, lambda: bool((feed.store.changefeeds.find("t") or known).resolved[0]))
        assert not feed.high_water
        shards[0].execute("UPDATE items SET note = 'later'")  # its scan is over, that of the other one is not
        going_on(feed, lambda: bool(feed.high_water))
        assert not feed.step()
    ids = [row["after"]["id"] for row in rows(tmp_path)]
    assert sorted(ids) == list(range(1, 5001))


def test_everything_up_to_the_end_arrives_from_a_shard_that_was_away(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path
) -> None:
    with closing(engine(databases, tmp_path)) as feed:
        feed.run()
        going_on(feed, lambda: bool(feed.high_water))
    shards[1].execute("INSERT INTO items VALUES (2, 'unread')")
    end = clock(databases[0])
    with closing(engine(databases, tmp_path, end_time=str(end))) as feed:
        feed.run()
        shards[1].close()
        with closed(databases[1]):
            known = feed.store.changefeeds.find("t")
            assert known is not None
            going_on(feed, lambda: (feed.store.changefeeds.find("t") or known).resolved[0] >= end)
        going_on(feed, lambda: feed.high_water >= end)
    assert delivered(tmp_path) == {2: "unread"}


def test_an_attempt_ends_when_a_shard_is_back(
    databases: tuple[str, str], shards: Sequence[Sql], tmp_path: Path
) -> None:
    with closing(engine(databases, tmp_path)) as feed:
        feed.run()
        feed.until(max(map(clock, databases)))
        shards[1].close()
        with closed(databases[1]):
            feed.attempt()
            assert feed.progress.token["away"] == [1]
            feed.step()
        with pytest.raises(RestartError, match="can be reached again"):
            feed.until(Timestamp(1 << 62), most=1_000_000)
        feed.attempt()
        assert feed.progress.token["away"] == []


FILTERS = "SELECT pg_get_expr(prqual, prrelid) FROM pg_publication_rel WHERE prqual IS NOT NULL"


def test_the_row_filter_of_a_shard_that_is_away_changes_when_it_is_back(
    databases: tuple[str, str], shards: list[Sql], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filtered(condition: str, *, on: bool) -> LocalEngine:
        query = f"SELECT * FROM items WHERE id > {condition}"
        options = {"row_filter": on, "envelope": "wrapped"}
        return LocalEngine(resolved_feed(databases, f"file://{tmp_path}/files", query=query, options=options), state)

    def filters() -> list[list[str]]:
        return [[text for (text,) in sql.execute(FILTERS)] for sql in shards]

    def insert(*ids: int) -> None:
        for number, sql in enumerate(shards):
            sql.cursor().executemany("INSERT INTO items VALUES (%s, '')", [(id_ * 2 + number,) for id_ in ids])

    state = tmp_path / "state"
    with closing(filtered("20", on=True)) as feed:
        feed.run()
        assert filters() == [["(id > 20)"]] * 2
        insert(1, 5, 10, 11)  # the server leaves out 2 to 20
        resolved(feed, databases)
        assert set(delivered(tmp_path)) == {21, 22, 23}
        insert(6, 12)
    other = filtered("8", on=True)  # as if a later release restricted the same query less
    known = feed._feed.definition()
    monkeypatch.setattr(ResolvedChangefeed, "definition", lambda _: known)
    with closing(other) as feed:
        shards[1].close()
        with closed(databases[1]):
            feed.attempt()
            going_on(feed, lambda: set(delivered(tmp_path)) >= {10, 12, 20, 24})
        shards[1] = psycopg.connect(databases[1], autocommit=True)
        assert filters() == [["(id > 8)"], ["(id > 20)"]]
        resolved(feed, databases)
        assert filters() == [["(id > 8)"]] * 2
        assert set(delivered(tmp_path)) == {10, 11, 12, 13, 20, 21, 22, 23, 24, 25}
    with closing(filtered("8", on=False)) as feed:
        feed.run()
        assert filters() == [[], []]
        insert(2, 13)
        resolved(feed, databases)
        assert set(delivered(tmp_path)) == {4, 5, 10, 11, 12, 13, *range(20, 28)}
