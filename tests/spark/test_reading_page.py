"""The examples of docs/reading-files.md run and give the results that the page states."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_sink_cloudstorage.manifest import Manifest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.pages import Page

PAGE = Page("reading-files.md")


@pytest.fixture(scope="module")
def examples() -> list[str]:
    return PAGE.blocks("python")


@pytest.fixture
def root(database: str, tmp_path: Path) -> Path:
    """The directory that the page calls /data/out. Of three orders, one was updated and one deleted."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text, total numeric(10,2))")
        connection.execute("INSERT INTO orders VALUES (1, 'book', 9.5), (2, 'lamp', 30), (3, 'sofa', 700)")
        engine = LocalEngine(
            resolved_feed(database, f"file://{tmp_path}/out", "public.orders", name="orders"), tmp_path
        )
        engine.run()
        while not engine.high_water:
            engine.step()
        connection.execute("UPDATE orders SET total = 8.5 WHERE id = 1")
        connection.execute("DELETE FROM orders WHERE id = 2")
        before = engine.high_water
        while engine.high_water <= before:
            engine.step()
        engine.close()
    return tmp_path / "out"


def run(text: str, root: Path, **names: Any) -> dict[str, Any]:
    exec(compile(text.replace("/data/out", str(root)), "example", "exec"), names)
    return names


def example(examples: list[str], word: str) -> str:
    (text,) = (text for text in examples if word in text)
    return text


@pytest.mark.slow
def test_the_python_examples_run(
    examples: list[str], root: Path, kept_spark: KeptSpark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = [text for text in examples if "spark" not in text and "duckdb" not in text]
    first, since, state = (run(text, root) for text in plain)
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "1 3 1"
    assert "public.orders 2" in shown
    assert since["done"] == first["mark"]
    assert {key: row["item"] for key, row in state["orders"].items()} == {1: "book", 3: "sofa"}
    run(example(examples, "duckdb"), root)
    shown = capsys.readouterr().out
    assert "8.5" in shown
    assert "700" in shown
    assert "lamp" not in shown
    spark = kept_spark.session()
    rows = run(example(examples, "pyspark.sql"), root, spark=spark)["state"].orderBy("id").collect()
    assert [(row.id, str(row.total)) for row in rows] == [(1, "8.50"), (3, "700.00")]


def test_the_shell_example_shows_the_rows_of_the_newest_mark(root: Path) -> None:
    (text,) = PAGE.blocks("sh")
    done = subprocess.run(
        ["sh", "-c", text.replace("/data/out", str(root))], capture_output=True, text=True, check=True
    )
    assert [json.loads(line)["key"] for line in done.stdout.splitlines()] == [[1], [2]]


def test_the_manifest_on_the_page_is_valid_and_has_all_fields(root: Path) -> None:
    (text,) = PAGE.blocks("json")
    shown = Manifest.from_bytes(text.encode())
    assert len(shown.stored_files()) == 1
    written = sorted(root.rglob("*.MANIFEST.*"))[-1].read_text().splitlines()
    for line, (real, heading) in zip(text.splitlines(), zip(written, ("header", "file"), strict=False), strict=True):
        assert json.loads(line).keys() == json.loads(real).keys()
        table = PAGE.text.partition(f"| {heading} | meaning |")[2].partition("\n\n")[0]
        named = [name.strip("` ") for row in table.splitlines()[2:] for name in row.split("|")[1].split(",")]
        assert sorted(named) == sorted(json.loads(real))
