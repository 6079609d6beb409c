"""What cannot be used: one clear sentence, exit status 2, no secret shown, and nothing created on the server.

Tests of each part have all its sentences: tests/cli/test_cli.py, and of plugins test_checks.py of PostgreSQL,
test_check.py of Kafka, test_registry.py and test_address.py of the registry, test_stores.py of object stores.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed

from cdc_core.cli.main import main

WRONG = "wrong+secret/word %41"
Refused = Callable[..., str]


@pytest.fixture
def table(database: str) -> str:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    return database


@pytest.fixture
def refused(table: str, tmp_path: Path, kept_spark: KeptSpark) -> Refused:
    """Returns the error of `cdc run`, which exits with status 2, shows no secret and creates nothing."""

    def said(source: str = table, tables: tuple[str, ...] = ("orders",), **feed: Any) -> str:
        run = Feed(tmp_path / "feed", source, tables, **feed)
        error = run.refusal(kept_spark)
        assert "Traceback" not in run.log()
        for secret in (WRONG, quote(WRONG, safe="")):
            assert secret not in run.log()
        assert_nothing_created(table)
        return error

    return said


def assert_nothing_created(uri: str) -> None:
    with psycopg.connect(uri) as connection:
        slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchall() == []
        assert connection.execute("SELECT pubname FROM pg_publication").fetchall() == []


def test_a_missing_table_is_refused_with_the_likely_one(refused: Refused) -> None:
    said = refused(tables=("public.order",))
    assert said == "error: table public.order does not exist; did you mean public.orders?"


def test_an_unreachable_source_is_named(refused: Refused) -> None:
    assert "127.0.0.1:1/shop" in refused(f"postgresql://user:{quote(WRONG, safe='')}@127.0.0.1:1/shop")


def test_an_unwritable_sink_is_refused_with_its_directory(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    assert f"{tmp_path}/occupied is not a directory" in refused(sink=f"file://{tmp_path}/occupied/out")


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
