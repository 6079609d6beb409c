"""The examples of docs/python-api.md run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page
from cdc_testing.stored import node

from cdc_core import Changefeed
from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore

PAGE = Page("python-api.md")
JOBS = 3
"""The number of the example that needs a store with a node."""


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
            f'[changefeed.{name}]\nsource = "${{SHOP}}"\ntables = ["public.{table}"]\nsink = "file://{tmp_path}/out"\n'
            for name, table in (("orders", "orders"), ("items", "items"), ("job", "orders"))
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP", documented(database))
    jobs = store_url(tmp_path / "jobs")
    with closing(ProgressStore(jobs)) as store:
        store.nodes.join(node("one"), lease_s=3600)
    names: dict[str, Any] = {}
    with kept_spark.lent():
        for number, example in enumerate(PAGE.blocks("python")):
            text = example.replace("postgresql://user@host:5432/shop", documented(database))
            text = text.replace("/data/out", f"{tmp_path}/{number}").replace("/var/lib/cdc", f"{tmp_path}/state")
            if number == JOBS:
                text = text.replace("postgresql+psycopg://user@host/jobs", jobs).replace('"orders"', '"job"')
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
            if number == JOBS:
                assert [(report.job.name, report.state) for report in names["reports"]] == [("job", "running")]
