"""`cdc audit`: what it prints, and its exit status."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cdc_testing.documented_role import documented
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.pages import Page
from cdc_testing.postgres import Sql, clock, losing

import cdc_core.changefeeds.auditing as audit_module
from cdc_core import Timestamp
from cdc_core.auditing.delivered import DeliveredFiles
from cdc_core.cli.main import cdc, main

PAGE = Page("audit.md")
LEFT = "SELECT pubname::text FROM pg_publication UNION ALL SELECT slot_name::text FROM pg_replication_slots"


@pytest.fixture
def sql(sql: Sql) -> Sql:
    sql.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(10,2), b bytea)")
    sql.execute("INSERT INTO orders SELECT g, g, 'x' FROM generate_series(1, 50) g")
    return sql


@contextmanager
def changefeed(database: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    """Write shop.toml in *directory*, and run its changefeed, also while the block audits it."""
    sink = f"file://{directory}/out"
    (directory / "shop.toml").write_text(
        f'[changefeed.orders]\nsource = "{documented(database)}"\ntables = ["orders"]\nsink = "{sink}"\n'
        "[changefeed.orders.options]\nupdated = true\nresolved = true\n"
    )
    engine = LocalEngine(resolved_feed(database, sink, "orders", name="orders"), directory)
    engine.run()
    engine.until(clock(database))
    marks = DeliveredFiles.marks

    def delivered(files: DeliveredFiles) -> Sequence[Timestamp]:
        engine.step()
        return marks(files)

    with monkeypatch.context() as patch:
        patch.setattr(DeliveredFiles, "marks", delivered)
        yield engine
    engine.close()


def test_nothing_is_left_behind_and_what_cannot_be_said_is_an_error(
    database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["audit", str(tmp_path / "shop.toml"), "--state", str(tmp_path)]
    arguments = [*command, "--wait"]
    with changefeed(database, tmp_path, monkeypatch) as engine:
        mark, before = engine.high_water, sorted(sql.execute(LEFT).fetchall())
        assert main([*arguments, "60"]) == 0
        assert re.fullmatch(r"50 rows of 1 table compared at \d+\.\d+: all are the same\n", capsys.readouterr().out)
        assert sorted(sql.execute(LEFT).fetchall()) == before
    monkeypatch.setattr(audit_module, "_WAIT_S", 1e9)
    assert main(command) == 0  # nothing runs it that could write a mark
    assert "50 rows of 1 table compared" in capsys.readouterr().out
    sql.execute("DELETE FROM orders WHERE id = 1")
    sql.execute("UPDATE orders SET total = 7.50 WHERE id = 2")
    sql.execute("INSERT INTO orders VALUES (99, 1, NULL)")
    assert main(command) == 2
    assert "3 rows of 50 differ, but the newest resolved mark" in capsys.readouterr().err
    assert main([*arguments, "0", "--at", str(mark)]) == 2
    assert "3 rows of 50 differ, but the newest resolved mark" in capsys.readouterr().err
    assert main([*arguments, "0", "--at", "yesterday"]) == 2
    assert "--at yesterday: this is not a resolved mark" in capsys.readouterr().err
    assert sorted(sql.execute(LEFT).fetchall()) == before
    shutil.rmtree(tmp_path / "out")
    assert main([*arguments, "0"]) == 2
    assert "there is no manifest below" in capsys.readouterr().err


def test_the_example_of_the_page_is_real(
    database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = PAGE.blocks("console")
    command, *expected = block.splitlines()
    arguments = command.removeprefix("$ cdc ").split()
    monkeypatch.chdir(tmp_path)
    sql.execute("DELETE FROM orders WHERE id > 3")
    with changefeed(database, tmp_path, monkeypatch) as engine:
        with losing(sql):
            sql.execute("DELETE FROM orders WHERE id = 1")
            sql.execute("UPDATE orders SET total = 7.50 WHERE id = 2")
            sql.execute("INSERT INTO orders VALUES (4, 1, NULL)")
        engine.until(clock(database))
        assert main(arguments) == 1
        *lines, figures = capsys.readouterr().out.splitlines()
        assert sorted(lines) == sorted(expected[:-1])
        assert re.sub(r"\d+\.\d{10}", "", figures) == re.sub(r"\d+\.\d{10}", "", expected[-1])

        assert main([*arguments, "--json", "--rows", "1"]) == 1
        first, last = map(json.loads, capsys.readouterr().out.splitlines())
        assert first["finding"] in ("missing", "extra", "different")
        figures = {"tables": 1, "rows": 3, "changed": 0, "missing": 1, "extra": 1, "different": 1}
        assert {name: last[name] for name in figures} == figures
        assert last["resolved"] < last["until"]


def test_every_option_is_on_the_page() -> None:
    for parameter in cdc.commands["audit"].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert not option.startswith("--") or option == "--debug" or f"`{option}" in PAGE.text, option
