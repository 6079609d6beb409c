"""The examples of docs/python-api.md run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page

from cdc_core import Changefeed

PAGE = Page("python-api.md")


@pytest.mark.slow
def test_the_examples_run(
    database: str, tmp_path: Path, kept_spark: KeptSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for table in ("orders", "items"):
            connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        connection.execute("INSERT INTO items VALUES (1)")
    (tmp_path / "feeds.toml").write_text(
        "".join(
            f'[changefeed.{table}]\nsource = "{documented(database)}"\ntables = ["public.{table}"]\nsink = "file://{tmp_path}/out"\n'
            for table in ("orders", "items")
        )
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with kept_spark.lent():
        for number, example in enumerate(PAGE.blocks("python")):
            text = example.replace("postgresql://user@host:5432/shop", documented(database))
            text = text.replace("/data/out", f"{tmp_path}/{number}").replace("/var/lib/cdc", f"{tmp_path}/state")
            exec(compile(text, f"example {number}", "exec"), names)
            if number == 0:
                assert names["outcome"].kind == "complete"
                rows = [line for file in tmp_path.glob("0/**/*.ndjson") for line in file.read_text().splitlines()]
                assert len(rows) == 2
                orders = names["orders"]
                names["orders"] = Changefeed(
                    name="again", source=orders.source, tables=orders.tables, sink=orders.sink, options=orders.options
                )
            if number == 1:
                assert [outcome.kind for outcome in names["outcomes"]] == ["stopped", "stopped"]
