"""Wrong input: one clear sentence, exit status 2, and nothing created on the server."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Protocol

import psycopg
import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed

from cdc_core.cli.main import main


class Refused(Protocol):
    """Returns the last line that `cdc run` says on its way out with status 2."""

    def __call__(self, feed: Feed) -> str: ...


@pytest.fixture
def refused(kept_spark: KeptSpark) -> Refused:
    def said(feed: Feed) -> str:
        assert feed._run_here(kept_spark) == 2, feed.log_tail()
        assert "Traceback" not in feed.log()
        return feed.log().splitlines()[-1]

    return said


@pytest.fixture
def table(database: str) -> str:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    return database


def assert_nothing_created(uri: str) -> None:
    with psycopg.connect(uri) as connection:
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchall() == []
        assert connection.execute("SELECT pubname FROM pg_publication").fetchall() == []


def test_an_unknown_option_is_refused_with_the_likely_one(refused: Refused, table: str, tmp_path: Path) -> None:
    said = refused(Feed(tmp_path, table, ["orders"], options={"updatd": True}))
    assert "does not know option 'updatd'; did you mean 'updated'?" in said
    assert_nothing_created(table)


def test_an_unknown_sink_is_refused_with_what_to_install(refused: Refused, table: str, tmp_path: Path) -> None:
    said = refused(Feed(tmp_path, table, ["orders"], sink="gcpubsub://project"))
    assert "gcpubsub" in said
    assert "file, gs" in said


def test_malformed_toml_is_refused_with_its_line(refused: Refused, table: str, tmp_path: Path) -> None:
    feed = Feed(tmp_path, table, ["orders"])
    feed.toml.write_text("[changefeed.orders]\nsource = \n")
    said = refused(feed)
    assert "feed.toml" in said
    assert "line 2" in said


def test_a_missing_table_is_refused_with_the_likely_one(refused: Refused, table: str, tmp_path: Path) -> None:
    said = refused(Feed(tmp_path, table, ["public.order"]))
    assert "public.order" in said
    assert "did you mean" in said
    assert_nothing_created(table)


def test_a_table_without_a_key_is_refused_with_the_remedy(refused: Refused, table: str, tmp_path: Path) -> None:
    with psycopg.connect(table) as connection:
        connection.execute("CREATE TABLE heap (a int)")
    said = refused(Feed(tmp_path, table, ["orders", "heap"]))
    assert "public.heap" in said
    assert "primary key" in said.lower()
    assert_nothing_created(table)


def test_diff_without_full_identity_is_refused_with_the_statement(refused: Refused, table: str, tmp_path: Path) -> None:
    said = refused(Feed(tmp_path, table, ["orders"], options={"diff": True}))
    assert 'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL' in said
    assert_nothing_created(table)


def test_a_missing_privilege_is_refused_with_the_grant(refused: Refused, table: str, tmp_path: Path) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(table)
    with psycopg.connect(table) as connection:
        connection.execute("DROP ROLE IF EXISTS bystander")
        connection.execute("CREATE ROLE bystander LOGIN PASSWORD 'few-rights'")
    uri = f"postgresql://bystander:few-rights@{parts['host']}:{parts['port']}/{parts['dbname']}"
    said = refused(Feed(tmp_path, uri, ["orders"]))
    assert "REPLICATION" in said
    assert "few-rights" not in said
    assert_nothing_created(table)


def test_an_unreachable_host_is_named(refused: Refused, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = refused(Feed(tmp_path, f"postgresql://user:hidden-word@127.0.0.1:{port}/shop", ["orders"]))
    assert f"127.0.0.1:{port}" in said
    assert "hidden-word" not in said


def test_an_unwritable_sink_is_refused_with_its_directory(refused: Refused, table: str, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    said = refused(Feed(tmp_path / "feed", table, ["orders"], sink=f"file://{tmp_path}/occupied/out"))
    assert f"{tmp_path}/occupied" in said
    assert_nothing_created(table)


def test_check_finds_the_same_and_changes_nothing(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(Feed(tmp_path, table, ["public.order"]).toml)]) == 2
    assert "did you mean" in capsys.readouterr().out
    fine = Feed(tmp_path / "fine", table, ["orders"])
    assert main(["check", str(fine.toml)]) == 0
    assert "public.orders: 2 columns, key id" in capsys.readouterr().out
    assert_nothing_created(table)
    assert not fine.files.exists()
    assert not fine.state.exists()
