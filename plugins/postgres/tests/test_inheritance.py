"""A check says which tables have children by INHERITS that are not delivered."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.postgres import Sql
from cdc_testing.runs import Feed

from cdc_core.cli.main import main


def test_children_that_are_not_delivered_are_named(
    database: str, sql: Sql, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql.execute("CREATE TABLE metrics (id int PRIMARY KEY)")
    sql.execute("CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    sql.execute("CREATE TABLE part PARTITION OF parted FOR VALUES FROM (1) TO (2)")

    def told(*tables: str) -> list[str]:
        assert main(["check", str(Feed(tmp_path, database, list(tables)).toml)]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if "inherit from it" in line]

    assert told("metrics", "parted") == []
    for name in ("b", "a"):
        sql.execute(f"CREATE TABLE metrics_{name} (PRIMARY KEY (id)) INHERITS (metrics)")
    (line,) = told("metrics")
    assert "public.metrics delivers no rows of tables that inherit from it: public.metrics_a and 1 more. To" in line
    (line,) = told("metrics", "metrics_a")
    assert "from it: public.metrics_b. To" in line
    assert told("metrics*") == []
