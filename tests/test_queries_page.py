"""The examples on the page about queries run, and what arrives is what the page shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from cdc_testing.ndjson_rows import delivered
from cdc_testing.pages import Page

PAGE = Page("queries.md")
CREATE, CHANGE, *QUERIES = PAGE.blocks("sql")
MESSAGES = PAGE.blocks("json")


@pytest.mark.slow
def test_each_query_delivers_what_the_page_shows(database: str, tmp_path: Path) -> None:
    assert len(QUERIES) == len(MESSAGES) >= 10
    lines = []
    for number, query in enumerate(QUERIES):
        lines += [f"[changefeed.q{number}]", f"source = {json.dumps(database)}", f"query = '''\n{query}'''"]
        lines += [f"sink = 'file://{tmp_path}/q{number}'"]
    file = tmp_path / "feeds.toml"
    file.write_text("\n".join(lines))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
        _run(file)
        connection.execute(CHANGE)
        _run(file)
    for number, (query, shown) in enumerate(zip(QUERIES, MESSAGES, strict=True)):
        rows = delivered(tmp_path / f"q{number}", "orders")
        for row in rows:
            del row["__crdb__"]
        assert rows == [json.loads(line) for line in shown.splitlines()], query


def _run(file: Path) -> None:
    command = [sys.executable, "-m", "cdc_core", "run", str(file), "--once"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.slow
def test_cdc_check_shows_the_columns_of_a_query_or_its_mistake(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
    right = _check(database, tmp_path, "SELECT id, amount * 2 AS twice FROM orders")
    assert right.returncode == 0, right.stdout
    assert "id integer, twice numeric(12,2)" in right.stdout
    wrong = _check(database, tmp_path, "SELECT custumer FROM orders")
    assert wrong.returncode == 2
    (shown,) = (block for block in PAGE.text.split("```") if "custumer" in block)
    assert shown.strip() in wrong.stdout
    assert "Traceback" not in wrong.stdout + wrong.stderr


def _check(database: str, directory: Path, query: str) -> subprocess.CompletedProcess[str]:
    file = directory / "check.toml"
    file.write_text(f"[changefeed.c]\nsource = '{database}'\nquery = '''{query}'''\nsink = 'file://{directory}/out'\n")
    command = [sys.executable, "-m", "cdc_core", "check", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
