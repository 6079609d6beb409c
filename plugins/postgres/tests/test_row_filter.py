"""The row filter: the server leaves out changes that the query does not deliver, and no others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_rangefeed_postgres.slot import Slot
from cdc_testing.feeding import Change, Feed, caught_up, feed_of, started
from cdc_testing.postgres import Sql, table_of

from cdc_core import ConfigError, RestartError, Restriction, TableSchema, TerminalRangefeedError, Token
from cdc_core.queries.restricting import restriction_of
from cdc_core.queries.statement import parse_query
from cdc_core.queries.table_queries import TableQueries

ON = {"row_filter": True}
Holds = Callable[..., bool]


def wanting(condition: str, table: str = "t") -> Callable[[TableSchema], Restriction]:
    return partial(restriction_of, parse_query(f"SELECT * FROM {table} WHERE {condition}"))


def unstarted(database: str, condition: str, *, on: bool = True, **context: Any) -> Any:
    options = {"row_filter": on, **context.pop("options", {})}
    return feed_of(database, "t", options=options, restriction=wanting(condition), **context)


@contextmanager
def filtered(database: str, condition: str, **context: Any) -> Iterator[Feed]:
    """A feed of t that has caught up, with a filter unless *on* is False."""
    with unstarted(database, condition, **context) as feed:
        feed.start()
        feed.catch_up()
        yield feed


def filters(sql: Sql) -> dict[str, str]:
    rows = sql.execute(
        "SELECT prrelid::regclass::text, pg_get_expr(prqual, prrelid) FROM pg_publication_rel WHERE prqual IS NOT NULL"
    )
    return dict(rows.fetchall())


def sent(sql: Sql, feed: Feed) -> int:
    """Return how many changes the server sends of what the feed has not released."""
    query = Slot.of(feed.context).peek(None, binary=False)
    row = sql.execute(f"SELECT count(*) FROM {query} WHERE get_byte(data, 0) IN (68, 73, 85)").fetchone()
    assert row is not None
    return int(row[0])


def seen(changes: Sequence[Change], holds: Holds) -> list[tuple[Any, ...]]:
    """Return what the query delivers of *changes*, without timestamps."""
    return [
        (change.table, change.op, change.key, change.after, change.before, change.unavailable)
        for change in changes
        if not change.scanned and holds(*change.key)
    ]


def test_changes_that_cannot_match_are_not_sent(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with filtered(database, "id > 990 AND v <> 'no'") as feed:
        sql.execute("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 1000) n")
        assert sent(sql, feed) == 10
        feed.catch_up()
    assert sorted(change.key for change in feed.changes) == [(n,) for n in range(991, 1001)]
    assert filters(sql) == {}, "it went with the publication"


TABLES = {
    "plain": "CREATE TABLE t (a int, b text, v int, pad text, PRIMARY KEY (a, b))",
    "full": "CREATE TABLE t (v int, b text, pad text, a int, PRIMARY KEY (b, a)); ALTER TABLE t REPLICA IDENTITY FULL",
    "index": "CREATE TABLE t (id bigserial PRIMARY KEY, a int NOT NULL, v int, b text NOT NULL, pad text,"
    "UNIQUE (a, b)); ALTER TABLE t REPLICA IDENTITY USING INDEX t_a_b_key",
    "partitioned": "CREATE TABLE t (gone int, b text, a int, v int, pad text, PRIMARY KEY (a, b))"
    "PARTITION BY RANGE (a); CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (5);"
    "ALTER TABLE t DROP COLUMN gone;"
    "CREATE TABLE high (pad text, a int NOT NULL, b text NOT NULL, v int, PRIMARY KEY (a, b));"
    "ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (5) TO (100)",
}


@pytest.mark.parametrize(
    "shape", ["plain", "partitioned", *(pytest.param(shape, marks=pytest.mark.slow) for shape in ("full", "index"))]
)
def test_what_arrives_is_the_same_with_and_without_a_filter(shape: str, database: str, sql: Sql) -> None:
    sql.execute(TABLES[shape])
    sql.execute("ALTER TABLE t ALTER COLUMN pad SET STORAGE EXTERNAL")
    chance = random.Random(shape)
    conditions: list[tuple[str, Holds]] = [
        ("a BETWEEN 3 AND 6", lambda a, _: 3 <= a <= 6),
        ("b IN ('x', 'é') AND a <> 4", lambda a, b: b in ("x", "é") and a != 4),
    ]
    diff = shape == "full"
    for condition, holds in conditions:
        if shape == "full":
            inner = holds
            holds = lambda b, a, inner=inner: inner(a, b)  # noqa: E731
        with (
            filtered(database, condition, initial_scan=False, diff=diff) as some,
            filtered(database, condition, on=False, changefeed="all", initial_scan=False, diff=diff) as all_,
        ):
            for _ in range(60):
                with sql.transaction():
                    for _ in range(chance.choice((1, 1, 3))):
                        write(sql, chance)
            assert 0 < sent(sql, some) < sent(sql, all_)
            some.catch_up()
            all_.catch_up()
            expected = seen(all_.changes, holds)
            assert expected
            assert seen(some.changes, holds) == expected


def write(sql: Sql, chance: random.Random) -> None:
    key, other = ((chance.randrange(10), chance.choice(("x", "y", "é"))) for _ in range(2))
    kind = chance.randrange(5)
    pad = chance.choice(("p", "p" * 9000))
    if kind < 2:
        sql.execute("INSERT INTO t (a, b, v, pad) VALUES (%s, %s, 1, %s) ON CONFLICT DO NOTHING", [*key, pad])
    elif kind == 2:
        sql.execute("UPDATE t SET v = v + 1 WHERE a = %s", [key[0]])
    elif kind == 3:
        free = "NOT EXISTS (SELECT FROM t WHERE a = %s AND b = %s)"
        sql.execute(f"UPDATE t SET a = %s, b = %s WHERE a = %s AND b = %s AND {free}", [*other, *key, *other])
    else:
        sql.execute("DELETE FROM t WHERE a = %s AND b = %s", [*key])


VALUES = {
    "smallint": (("-5", "0", "7"), "a > -5 AND a <> 3000000000"),
    "bigint": (("-9223372036854775808", "4", "9223372036854775807"), "a >= -9223372036854775807"),
    "numeric(10,2)": (("1.50", "NaN", "3"), "a < 2"),
    "boolean": (("true", "false"), "NOT a"),
    "date": (("2024-02-29", "2024-02-28"), "a >= DATE '2024-02-29'"),
    "timestamp(3)": (("2024-02-29 12:00", "2024-02-29 12:00:00.001"), "a = TIMESTAMP '2024-02-29 12:00:00'"),
    "timestamptz": (("2024-02-29 12:00+02", "2024-02-28"), "a > TIMESTAMP '2024-02-29 09:59:59.999999'"),
    "text": (("a", "A", "ä", "it's", "\\"), "a IN ('ä', 'it''s', '\\\\', 'a ')"),
    "varchar(5)": (("a", "b "), "a <> 'b '"),
    "uuid": (("6a0b39ee-c2f1-4d3f-a2f0-d7ab21ccd1a5",), "a <> '6a0b39ee-c2f1-4d3f-a2f0-d7ab21ccd1a5'"),
}


def test_every_type_is_compared_as_by_a_scan(database: str, sql: Sql) -> None:
    sections = {f"t{number}": {"where": where} for number, (_, where) in enumerate(VALUES.values())}
    restriction = TableQueries.of(None, sections).restriction_of
    for table, type_ in zip(sections, VALUES, strict=True):
        sql.execute(f"CREATE TABLE {table} (a {type_} PRIMARY KEY)")
    with caught_up(database, "public.*", options=ON, restriction=restriction) as feed:
        assert set(filters(sql)) == set(sections)
        for table, (values, _) in zip(sections, VALUES.values(), strict=True):
            for value in values:
                sql.execute(f"INSERT INTO {table} VALUES (%s)", [value])
        feed.catch_up()
    with feed_of(database, "public.*", restriction=restriction) as scanned:
        scanned.start()
        scanned.catch_up()
    assert feed.state.keys() <= {f"public.{table}" for table in sections}
    for table, (values, _) in zip(sections, VALUES.values(), strict=True):
        rows = feed.rows(f"public.{table}")
        assert rows == scanned.rows(f"public.{table}")
        assert len(rows) < len(values), "something is left out"


def test_what_a_filter_cannot_compare_is_left_to_the_query(database: str, sql: Sql) -> None:
    sql.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN small AS int; CREATE COLLATION mine (locale = 'C')"
    )
    sql.execute(
        "CREATE TABLE t (m mood, s small, c text COLLATE mine, u uuid, id int, v int, PRIMARY KEY (m, s, c, u, id))"
    )
    parts = ("m = 'ok'", "s > 5", "c = 'x'", "u = 'A'", "id > 5", "id IS NOT NULL", "v > 5")
    with filtered(database, " AND ".join(parts)) as feed:
        assert filters(sql) == {"t": "(id > 5)"}
        titles = dict(feed.rangefeed.explain(feed.rangefeed.schemas()[0]))
    assert titles == {
        "changes that PostgreSQL sends, according to the publication's row filter": ['"id" > 5'],
        "cannot be in the publication's row filter": [
            "\"m\" = 'ok': column m has a type that is not built in",
            '"s" > 5: column s has a type that is not built in',
            "\"c\" = 'x': column c has a collation that is not built in",
            "\"u\" = 'A': column u is compared with a text that is not a uuid in lower case",
            '"id" IS NOT NULL: column id is in the key and never null',
            '"v" > 5: column v is not in the key, and the log may not have it for deletes',
        ],
    }


def test_what_a_scan_cannot_compare_is_told(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, code char(3))")
    queries = TableQueries.of(None, {"t": {"where": "id > 5 AND code = 'x'"}})
    with feed_of(database, "t", restriction=queries.restriction_of) as feed:
        titles = dict(feed.rangefeed.explain(feed.rangefeed.schemas()[0]))
    assert titles["left to Spark, too, because PostgreSQL compares these types differently"] == ["\"code\" = 'x'"]


def test_a_section_that_delivers_all_deletes_has_no_filter(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE s (id int PRIMARY KEY)")
    queries = TableQueries.of(None, {"t": {"where": "id > 5 AND v > 5"}, "s": {"where": "id > 5 AND id < 9"}})
    with started(database, "t", "s", options=ON, restriction=queries.restriction_of):
        assert filters(sql) == {"s": "((id > 5) AND (id < 9))"}


def test_turning_the_option_on_and_off_loses_nothing(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with filtered(database, "id > 10", on=False) as feed:
        for number, on in enumerate((True, True, False, True), start=1):
            sql.execute("INSERT INTO t VALUES (%s, 0), (%s, 0)", [number, 100 + number])
            feed.resume(options={"row_filter": on})
            assert filters(sql) == ({"t": "(id > 10)"} if on else {})
            sql.execute("UPDATE t SET v = v + 1")
            feed.catch_up()
            wanted = table_of(sql, "SELECT * FROM t WHERE id > 10")
            assert {key: row for key, row in feed.rows("public.t").items() if key > (10,)} == wanted
        assert not [change for change in feed.changes if change.scanned]
        assert [change.key for change in feed.changes if change.key < (10,)] == [(1,), (1,), (2,), (3,), (4,)]


def test_a_crash_while_the_filter_is_changed_passes_the_next_start(
    database: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with filtered(database, "id > 10", on=False) as feed:
        for on in (True, False):
            before = feed.saved
            feed.context = replace(feed.context, options=PostgresOptions(row_filter=on))
            crashed = PostgresRangefeed(feed.context)
            intents: list[Token] = []
            crashed.start(before, intents.append)  # what it returns is lost
            crashed.close()
            feed.saved = intents[-1]
            sql.execute("INSERT INTO t SELECT count(*) + 10 FROM t UNION ALL SELECT count(*) + 11 FROM t")
            feed.resume(options={"row_filter": on})
            feed.catch_up()
        assert feed.rows("public.t") == table_of(sql, "SELECT * FROM t WHERE id > 10")


def test_a_wider_condition_reads_the_table_again(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (5, 0)")
    with filtered(database, "id > 10") as feed:
        sql.execute("INSERT INTO t VALUES (1, 0), (4, 0), (20, 0)")
        feed.resume(restriction=wanting("id > 3"))
        feed.catch_up()
        assert filters(sql) == {"t": "(id > 3)"}
        assert set(feed.rows("public.t")) == {(4,), (5,), (20,)}


@pytest.mark.parametrize("on", [False, True])
def test_a_filter_that_was_removed_counts_until_the_log_of_before_is_read(on: bool, database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with filtered(database, "id > 10") as feed:
        sql.execute("INSERT INTO t VALUES (1, 0), (5, 0), (20, 0)")
        feed.resume(options={"row_filter": False})
        feed.resume(options={"row_filter": on}, restriction=wanting("id > 3"))
        feed.catch_up()
        assert {key for key in feed.rows("public.t") if key > (3,)} == {(5,), (20,)}
        assert "past_filter" not in feed.token["tables"]["public.t"], "the scan has all that it left out"


def test_a_filter_that_was_removed_counts_for_a_transaction_that_was_open(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with filtered(database, "id > 10") as feed, psycopg.connect(database) as writer:
        writer.execute("INSERT INTO t VALUES (5, 0)")
        feed.resume(options={"row_filter": False})
        sql.execute("INSERT INTO t VALUES (20, 0)")
        feed.catch_up()
        writer.commit()
        feed.resume(restriction=wanting("id > 3"))
        feed.catch_up()
        assert set(feed.rows("public.t")) == {(5,), (20,)}


def test_a_filter_that_was_removed_is_forgotten_after_the_log_of_before(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with filtered(database, "id > 10") as feed:
        feed.resume(options={"row_filter": False})
        until = feed.token["tables"]["public.t"]["past_filter"][1]
        query = "SELECT restart_lsn >= %s::pg_lsn, pg_log_standby_snapshot() FROM pg_replication_slots"

        def is_read() -> bool:
            sql.execute("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
            row = sql.execute(f"{query} WHERE slot_name = %s", [until, Slot.of(feed.context).name]).fetchone()
            return row is not None and row[0]

        feed.steps_until(is_read)
        feed.resume(restriction=wanting("id > 3"))
        assert "past_filter" not in feed.token["tables"]["public.t"]
        feed.catch_up()
        assert not [change for change in feed.changes if change.scanned], "nothing is read again"


def test_a_table_that_joins_has_its_filter_from_the_start(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE s (id int PRIMARY KEY)")
    queries = TableQueries.of(None, {"t": {"where": "id > 10"}})
    with started(database, "public.*", options=ON, restriction=queries.restriction_of) as feed:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (11)")
        with pytest.raises(RestartError):
            feed.steps_until(lambda: False)
        feed.restart()
        assert filters(sql) == {"t": "(id > 10)"}
        sql.execute("INSERT INTO t VALUES (2), (12)")
        feed.catch_up()
        assert set(feed.rows("public.t")) == {(11,), (12,)}
        feed.resume(tables=("public.s",))
        assert filters(sql) == {}


SWAP = "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b"


@pytest.mark.parametrize(
    ("alter", "stopped", "what"),
    [
        ("ALTER TABLE t RENAME a TO c", False, "were renamed or replaced"),
        (SWAP, True, "were renamed or replaced"),
        (f"{SWAP}; INSERT INTO t VALUES (12, 9); {SWAP}", False, "may have been renamed and renamed back"),
        (f"{SWAP}; INSERT INTO t VALUES (12, 9); {SWAP}", True, "may have been renamed and renamed back"),
    ],
    ids=["renamed", "swapped", "swapped and back", "swapped and back while stopped"],
)
def test_a_filter_whose_columns_changed_names_stops_the_changefeed(
    alter: str, stopped: bool, what: str, database: str, sql: Sql
) -> None:
    sql.execute("CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))")
    with filtered(database, "a > 10") as feed:
        sql.execute("INSERT INTO t VALUES (11, 1)")
        sql.execute(alter)
        if stopped:
            feed.restart()
        with pytest.raises(TerminalRangefeedError) as stop:
            feed.catch_up()
        assert f"table public.t: columns of its row filter (a) {what}, so changes" in str(stop.value)
        assert (11, 1) in [change.key for change in feed.changes], "what came before is delivered"


@pytest.mark.parametrize("conditions", [("id > 20",), ("id > 20", "id > 10")], ids=["altered", "altered and back"])
def test_a_filter_that_was_altered_by_hand_stops_the_changefeed(
    database: str, sql: Sql, conditions: tuple[str, ...]
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with filtered(database, "id > 10") as feed:
        for condition in conditions:
            sql.execute(f"ALTER PUBLICATION {Slot.of(feed.context).name} SET TABLE t WHERE ({condition})")
            sql.execute("INSERT INTO t SELECT 11 + count(*) FROM t")
        with pytest.raises(TerminalRangefeedError, match=r"the entry in publication \w+ was replaced"):
            feed.restart()


def test_what_does_not_concern_the_names_of_columns_changes_nothing(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
    with filtered(database, "a > 10") as feed:
        for number, statement in enumerate(
            (
                "ALTER TABLE t ALTER a SET STATISTICS 10",
                "ALTER TABLE t ADD COLUMN c int",
                "ALTER TABLE t RENAME b TO d",
                "ALTER TABLE t ALTER a SET DEFAULT 5",
                "ALTER TABLE t DROP COLUMN c",
                "VACUUM FULL t",
            )
        ):
            sql.execute(statement)
            sql.execute("INSERT INTO t VALUES (%s), (%s)", [number, 11 + number])
            feed.catch_up()
        assert set(feed.rows("public.t")) == {(11 + number,) for number in range(6)}


def test_another_key_takes_the_filter_away(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL)")
    with filtered(database, "a > 10") as feed:
        sql.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b)")
        with pytest.raises(psycopg.errors.InvalidColumnReference):
            sql.execute("UPDATE t SET b = 1")
        with pytest.raises(RestartError):
            feed.catch_up()
        feed.restart()
        assert filters(sql) == {}
        sql.execute("INSERT INTO t VALUES (11, 1), (1, 2); UPDATE t SET a = a + 1")
        feed.catch_up()
        assert set(feed.rows("public.t")) == {(1,), (2,)}


def test_a_publication_that_was_made_beforehand_is_refused(database: str, sql: Sql) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sql.execute("CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)")
    options = {"publication_name": "p"}
    with unstarted(database, "id > 10", options=options) as feed, pytest.raises(ConfigError) as refused:
        feed.start()
    assert str(refused.value) == (
        "option 'row_filter' sets filters in the changefeed's own publication, but publication p existed"
        " before the changefeed, which never alters it. Remove the option, or publication_name"
    )


@pytest.mark.slow
def test_a_server_without_row_filters_is_refused_by_its_version(
    postgres_version: Callable[[int], EmbeddedPostgres],
) -> None:
    uri = postgres_version(14).uri()
    with psycopg.connect(uri, autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with (
            unstarted(uri, "id > 10") as feed,
            pytest.raises(ConfigError, match="'row_filter' needs PostgreSQL 15 or new"),
        ):
            feed.start()
        with filtered(uri, "id > 10", on=False) as feed:
            assert feed.rangefeed.explain(feed.rangefeed.schemas()[0])
        sql.execute("DROP TABLE t")
