"""One line before the first start names the tables whose unchanged large values are not in the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.rangefeed import PostgresRangefeed
from cdc_testing.documented_role import documented
from cdc_testing.feeding import started
from cdc_testing.postgres import Sql
from cdc_testing.runs import Feed

from cdc_core import RangefeedContext, Token
from cdc_core.cli.main import main


def lines(
    uri: str, caplog: pytest.LogCaptureFixture, *tables: str, saved: Token | None = None, **options: str
) -> list[str]:
    context = RangefeedContext(
        changefeed="orders",
        feed_id="00aa11bb22cc",
        uri=documented(uri),
        tables=tables,
        saved=saved,
        options=PostgresOptions(**options),  # type: ignore[arg-type]
    )
    caplog.clear()
    rangefeed = PostgresRangefeed(context)
    with caplog.at_level(logging.INFO):
        rangefeed.check()
    rangefeed.close()
    return [record.getMessage() for record in caplog.records if record.name.endswith("large_values")]


def test_a_table_that_can_lack_values_is_named_with_the_statement(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    (line,) = lines(database, caplog, "t")
    assert line == (
        "public.t: updates do not log large (TOAST) values that they leave unchanged, so messages list them in"
        ' \'unavailable\'. To log them, run ALTER TABLE "public"."t" REPLICA IDENTITY FULL;'
    )
    (line,) = lines(database, caplog, "t", unchanged_toast="lookup")
    assert "messages have the current values. To log" in line
    with started(database, "t", changefeed="orders", feed_id="00aa11bb22cc") as feed:
        assert lines(database, caplog, "t", saved=feed.saved) == []
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    assert lines(database, caplog, "t") == []


def test_a_check_shows_it(database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    feed = Feed(tmp_path, database, ["t"])
    assert main(["check", str(feed.toml)]) == 0
    assert "\n           note: public.t: updates do not log large (TOAST) values" in capsys.readouterr().out
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    assert main(["check", str(feed.toml)]) == 0
    assert "TOAST" not in capsys.readouterr().out


def test_tables_whose_rows_are_always_whole_are_not_named(
    database: str, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    sql.execute("CREATE TABLE ints (id int PRIMARY KEY, n numeric(10, 2), code varchar(20))")
    sql.execute("CREATE TABLE keyed (id text PRIMARY KEY, n int)")
    sql.execute("CREATE TABLE plain (id int PRIMARY KEY, body text)")
    sql.execute("ALTER TABLE plain ALTER COLUMN body SET STORAGE PLAIN")
    assert lines(database, caplog, "ints", "keyed", "plain") == []


def test_partitions_are_named_and_a_long_list_is_cut(database: str, sql: Sql, caplog: pytest.LogCaptureFixture) -> None:
    sql.execute("CREATE TABLE p (id int PRIMARY KEY, body jsonb) PARTITION BY LIST (id)")
    for number in range(8):
        sql.execute(f"CREATE TABLE p{number} PARTITION OF p FOR VALUES IN ({number})")
    sql.execute("ALTER TABLE p0 REPLICA IDENTITY FULL")
    (line,) = lines(database, caplog, "p")
    assert line.startswith("public.p1, public.p2, public.p3, public.p4, public.p5 and 2 more: updates do not log")
    assert "ALTER TABLE … REPLICA IDENTITY FULL;" in line
