"""The examples on the page about queries run, and what arrives is what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.documented_role import documented
from cdc_testing.evaluating import answers, planned
from cdc_testing.feeding import feed_of
from cdc_testing.fixtures import fresh_database
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page

from cdc_core import EncoderContext, Envelope, RowBatch
from cdc_core.spark.query_planning import query_session

PAGE = Page("queries.md")
EXPLAINED = Page("reading-less.md").text
ROUTED, CREATE, CHANGE, *QUERIES = PAGE.blocks("sql")
FUNCTIONS = dict(re.findall(r"function `(\w+) = \"(.*)\"`", PAGE.text))
MESSAGES = PAGE.blocks("json")
DIFFERENCES = PAGE.text.split("## Differences from PostgreSQL")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def batches(postgres_server: EmbeddedPostgres) -> list[RowBatch]:
    """The rows of the table's initial scan and of the changes, as the rangefeed reads them."""
    with (
        fresh_database(postgres_server) as uri,
        psycopg.connect(uri, autocommit=True) as connection,
        feed_of(uri, "orders", diff=True) as feed,
    ):
        connection.execute(CREATE)
        feed.start()
        feed.scan()
        connection.execute(CHANGE)
        feed.catch_up()
        return [batch for step in feed._attempts.steps for reading in step.readings for batch in reading.batches]


def test_there_is_an_example_for_each_use() -> None:
    assert len(QUERIES) == len(MESSAGES) >= 10


@pytest.mark.parametrize(("query", "shown"), list(zip(QUERIES, MESSAGES, strict=True)))
def test_each_query_gives_what_the_page_shows(
    batches: list[RowBatch], kept_spark: KeptSpark, query: str, shown: str
) -> None:
    with kept_spark.lent():
        session = query_session(kept_spark.session())
        found = answers(session, planned(session, query, batches[0].schema, functions=FUNCTIONS), *batches)
    context = EncoderContext(changefeed="c", envelope=Envelope(name="bare"), options=JsonOptions())
    encoder = JsonEncoder(context)
    values = [value for rows in found for value in encoder.encode(rows, topic="orders").value.to_pylist()]
    assert [value.decode() for value in values] == shown.splitlines()


def test_the_query_with_topics_gives_each_row_its_own(batches: list[RowBatch], kept_spark: KeptSpark) -> None:
    with kept_spark.lent():
        session = query_session(kept_spark.session())
        found = answers(session, planned(session, ROUTED, batches[0].schema), *batches)
    topics = [topic for rows in found if isinstance(rows, RowBatch) for topic in rows.column("topic").to_pylist()]
    assert topics == ["orders-eu", "orders-us", "orders-eu", "orders-us", "orders-eu"]


@pytest.mark.slow
def test_differences_from_postgresql_are_as_the_page_shows(
    batches: list[RowBatch], database: str, kept_spark: KeptSpark
) -> None:
    lines = re.findall(r"^\| `(.+?)`.*? \| (.*?) \| (.*?) \| `(.+)` \|$", DIFFERENCES, re.MULTILINE)
    assert len(lines) >= 10
    items = [f"({text}) AS x{number}" for number, text in enumerate(line[place] for line in lines for place in (0, 3))]
    with kept_spark.lent():
        session = query_session(kept_spark.session())
        query = f"SELECT {', '.join(items)} FROM orders"
        (found,) = answers(session, planned(session, query, batches[0].schema), batches[0].slice(0, 1))
    assert isinstance(found, RowBatch)
    in_spark = list(found.column("after")[0].as_py().values())
    with psycopg.connect(database) as connection:
        for number, (expression, of_postgres, of_spark, _) in enumerate(lines):
            row = connection.execute(f"SELECT ({expression})::text".encode()).fetchone()
            assert row is not None
            shown = [_shown(value) for value in (row[0], *in_spark[2 * number : 2 * number + 2])]
            assert shown == [of_postgres, of_spark, of_postgres], expression


def _shown(value: object) -> str:
    """Return how the page shows *value*."""
    text = f"`{value:g}`" if isinstance(value, float) and value.is_integer() else f"`{value}`"
    return {"`None`": "null", "``": "an empty string"}.get(text, text)


@pytest.mark.slow
def test_check_and_explain_show_columns_mistakes_and_plans(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CREATE)
    right = _cdc("check", database, tmp_path, "SELECT id, amount * 2 AS twice FROM orders")
    assert right.returncode == 0, right.stdout
    assert "id integer, twice numeric(12,2)" in right.stdout
    wrong = _cdc("check", database, tmp_path, "SELECT custumer FROM orders")
    assert wrong.returncode == 2
    (shown,) = (block for block in PAGE.text.split("```") if "custumer" in block)
    assert shown.strip() in wrong.stdout
    assert "Traceback" not in wrong.stdout + wrong.stderr
    query = "SELECT id, upper(customer) AS who FROM orders WHERE id > 100 AND lower(status) = 'paid'"
    explained = _cdc("explain", database, tmp_path, query)
    (shown,) = (block for block in EXPLAINED.split("```") if "plan of Spark" in block and "changefeed 'c'" in block)
    assert explained.stdout == shown.lstrip()


def _cdc(command: str, database: str, directory: Path, query: str) -> subprocess.CompletedProcess[str]:
    file = directory / "check.toml"
    file.write_text(
        f"[changefeed.c]\nsource = '{documented(database)}'\nquery = '''{query}'''\nsink = 'file://{directory}/out'\n"
    )
    process = [sys.executable, "-m", "cdc_core", command, str(file)]
    return subprocess.run(process, capture_output=True, text=True, check=False, timeout=300)
