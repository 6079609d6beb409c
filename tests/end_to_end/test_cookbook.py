"""The recipes of the cookbook do what their pages show, from PostgreSQL into files and webhooks."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import psycopg
import pytest
from cdc_testing.cookbook import (
    PAGES,
    SECRETS,
    Dish,
    cook,
    functions,
    masked,
    masked_cells,
    page_of,
    recipes,
    run,
    running,
    shown,
    table,
)
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.documented_role import documented
from cdc_testing.fixtures import fresh_database
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.pages import Page
from cdc_testing.thread_host import KeptThreads
from cdc_testing.webhook_server import WebhookServer

from cdc_core import ChangeReader, Timestamp

pytestmark = pytest.mark.slow

Dishes = Mapping[str, Dish]
SERVICES, WAREHOUSE, DATABASES, _, PERSONAL, ROWS = map(page_of, PAGES)


@pytest.fixture(scope="module")
def dishes(
    tmp_path_factory: pytest.TempPathFactory,
    marks_of_idle_tables: None,
    webhook_server: WebhookServer,
    kept_spark: KeptSpark,
    kept_threads: KeptThreads,
) -> Iterator[Dishes]:
    """All recipes but those of Kafka, by the names of their changefeeds, after both of their runs."""
    directory = tmp_path_factory.mktemp("cookbook")
    settings = {"fsync": "off", "shared_buffers": "16MB", "max_replication_slots": "80", "max_wal_senders": "80"}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        server = stack.enter_context(CopiedPostgres(settings={**settings, "max_connections": "300"}))
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        found = {}
        for recipe in (recipe for page in PAGES for recipe in recipes(page_of(page))):
            if "kafka://" not in recipe.toml:
                databases = [stack.enter_context(fresh_database(server)) for _ in range(recipe.sources)]
                found[recipe.name] = Dish(recipe, directory, databases, webhook=webhook_server)
        sales = found["sales"]
        sales.execute("DELETE FROM sales; INSERT INTO sales VALUES ('rome', 1, 50)", sales.databases[1])
        for needs_spark, lender in ((False, kept_threads), (True, kept_spark)):
            cook(lender, [dish for dish in found.values() if is_for_spark(dish) is needs_spark])
        yield found


def is_for_spark(dish: Dish) -> bool:
    fields = tomllib.loads(dish.recipe.toml)["changefeed"][dish.recipe.name]
    return bool({"query", "table"} & fields.keys())


@pytest.mark.parametrize(
    ("name", "page", "heading"),
    [
        ("search", "services", "Search index"),
        ("low_stock", "services", "Alerts in a chat"),
        ("events", "services", "Events for a router"),
        ("copy", "databases", "Copy in another PostgreSQL"),
        ("sales", "databases", "Several databases"),
        ("audit", "personal-data", "Audit log"),
        ("masked", "personal-data", "Masked columns"),
        ("erased", "personal-data", "Erasure"),
        ("paid", "rows", "Selected rows"),
        ("living", "rows", "Soft deletes"),
        ("contract", "rows", "Data contract"),
    ],
)
def test_what_arrives_is_what_the_page_shows(dishes: Dishes, name: str, page: str, heading: str) -> None:
    (expected,) = shown(page_of(page), heading, "json")
    assert masked(dishes[name].arrived()) == masked(expected.splitlines())


def test_a_search_index_has_the_newest_versions_whatever_is_repeated(dishes: Dishes) -> None:
    bulk = functions(SERVICES, "Search index")["bulk"]
    bodies = dishes["search"].bodies()
    index: dict[str, tuple[int, Any]] = {}
    for body in [*bodies, *bodies]:
        lines = iter([json.loads(line) for line in bulk(body).splitlines()])
        for line in lines:
            ((verb, action),) = line.items()
            document = next(lines) if verb == "index" else None
            assert action["version_type"] == "external_gte"
            if action["version"] >= index.get(action["_id"], (0, None))[0]:
                index[action["_id"]] = (action["version"], document)
    assert {key: document for key, (_, document) in index.items()} == {
        "1": {"id": 1, "name": "lamp", "stock": 3},
        "2": None,
    }


def test_an_alert_is_a_sentence_and_its_request_can_be_recognized(
    dishes: Dishes, webhook_server: WebhookServer
) -> None:
    alerts = functions(SERVICES, "Alerts in a chat")["alerts"]
    requests = webhook_server.requests(dishes["low_stock"].path)
    assert len({request["headers"]["idempotency-key"] for request in requests}) == 1
    (body,) = dishes["low_stock"].bodies()
    assert alerts(body) == [{"text": "Only 3 of lamp left"}]


@pytest.fixture(scope="module")
def lake(dishes: Dishes) -> Iterator[None]:
    """The view that the first example of the page about warehouses makes."""
    (example,) = shown(WAREHOUSE, "", "python")
    exec(example.replace("/data/", f"{dishes['lake'].data}/"))
    yield
    duckdb.sql("DROP VIEW IF EXISTS orders; DROP TABLE IF EXISTS orders_all; DROP VIEW changes")


def answer(query: str) -> list[list[str]]:
    return [masked_cells(row) for row in duckdb.execute(query).fetchall()]


def test_the_lake_has_every_change(lake: None) -> None:
    assert answer("SELECT id, customer, status, amount, op FROM changes ORDER BY updated, id") == table(WAREHOUSE, "")


def test_a_warehouse_has_the_table_however_often_files_are_merged(lake: None) -> None:
    (merge,) = shown(WAREHOUSE, "Copy of a table", "sql")
    deletes_first = merge.replace("FROM changes", "FROM (FROM changes WHERE op = 'd')")
    for statements in (deletes_first, merge, merge):
        duckdb.sql(statements)
    assert answer("FROM orders ORDER BY id") == table(WAREHOUSE, "Copy of a table")


def test_a_table_is_read_as_of_a_mark(dishes: Dishes, lake: None) -> None:
    (query,) = shown(WAREHOUSE, "A table at an earlier time", "sql")
    first, *_ = sorted(dishes["lake"].data.rglob("*.RESOLVED"), key=lambda path: path.name)
    mark = json.loads(first.read_text())["resolved"]
    found = answer(re.sub(r"'\d+\.\d+'", f"'{mark}'", query))
    assert found == table(WAREHOUSE, "A table at an earlier time")


def test_a_dimension_has_its_history(lake: None) -> None:
    (query,) = shown(WAREHOUSE, "History of a dimension", "sql")
    assert answer(query) == table(WAREHOUSE, "History of a dimension")


def test_changes_are_counted(lake: None) -> None:
    def counts(rows: list[list[str]]) -> Counter[str]:
        """The runs may have been in two hours."""
        found: Counter[str] = Counter()
        for _, op, count in rows:
            found[op] += int(count)
        return found

    (query,) = shown(WAREHOUSE, "Changes per hour", "sql")
    assert counts(answer(query)) == counts(table(WAREHOUSE, "Changes per hour"))


def test_an_export_is_a_file(dishes: Dishes) -> None:
    (expected,) = shown(WAREHOUSE, "Export", "text")
    assert dishes["export"].arrived() == expected.splitlines()


def test_a_copy_follows_and_is_complete_at_the_move(dishes: Dishes, kept_threads: KeptThreads) -> None:
    copy = dishes["copy"]
    (source,) = copy.databases
    with psycopg.connect(source, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA copy CREATE TABLE customers (LIKE public.customers INCLUDING ALL)")
    target = f"{source}{'&' if '?' in source else '?'}options=-csearch_path%3Dcopy"
    catch_up = functions(DATABASES, "Copy in another PostgreSQL", "Move to another server")["catch_up"]
    with running(kept_threads, copy):
        mover = Thread(target=catch_up, args=(f"file://{copy.data}/copy", source, target), daemon=True)
        mover.start()
        mover.join(120)
    assert_same(source, target)
    command, expected = console(DATABASES, "Move to another server")
    status, printed = copy.command(command)
    assert (status, masked([printed])) == (0, masked([expected]))


def test_dead_letters_are_listed_and_sent_again(dishes: Dishes) -> None:
    orders = dishes["orders"]
    listing, sending = shown(ROWS, "Dead letters", "console")
    (letters,) = shown(ROWS, "Dead letters", "text")
    assert states(orders) == [(1, "new"), (2, "paid"), (2, "sent")]
    status, printed = orders.command(listing)
    assert (status, masked(columns(printed))) == (0, masked(columns(letters)))
    text = orders.toml.read_text()
    orders.toml.write_text(text.replace("updated = true", 'updated = true\nparquet_special_values = "string"'))
    command, _, expected = sending.partition("\n")
    assert orders.command(command) == (0, expected)
    assert states(orders) == [(1, "new"), (2, "paid"), (3, "new"), (2, "sent")]


def states(orders: Dish) -> list[tuple[int, str]]:
    """Return what the files of orders have, in the order of the commits."""
    path = f"{orders.data}/orders/*/*.parquet"
    files = f"read_parquet('{path}', union_by_name = true)"
    return duckdb.execute(f"SELECT id, status FROM {files} ORDER BY __crdb__updated, id").fetchall()


def test_a_broken_contract_stops_the_changefeed_and_is_accepted(dishes: Dishes, kept_threads: KeptThreads) -> None:
    def ids() -> set[int]:
        """Whom a consumer knows that waits for marks."""
        with ChangeReader(f"file://{contract.data}/contract") as reader:
            return {key["id"] for rows in reader.read() for key in rows.column("key").to_pylist()}

    contract = dishes["contract"]
    (expected,) = shown(ROWS, "Data contract", "text")
    assert contract.end() == "failed"
    assert masked([f"{contract.outcome and contract.outcome.error}"]) == masked([expected.strip()])
    assert ids() == {1, 2}
    contract.toml.write_text(contract.toml.read_text().replace('"stop"', '"nobackfill"'))
    run(kept_threads, [contract])
    assert contract.end() == "complete", contract.outcome
    assert ids() == {1, 2, 3}


def test_fixtures_have_nothing_personal(dishes: Dishes, tmp_path: Path) -> None:
    fixtures = functions(PERSONAL, "Fixtures for tests")["fixtures"]
    (expected,) = shown(PERSONAL, "Fixtures for tests", "json")
    fixtures(documented(dishes["masked"].databases[0]), str(tmp_path / "people.ndjson"))
    assert (tmp_path / "people.ndjson").read_text() == expected


def test_a_rescan_sends_rows_again(dishes: Dishes, kept_threads: KeptThreads) -> None:
    copy = dishes["copy"]
    before = copy.arrived()
    assert copy.command(console(DATABASES, "A new consumer")[0])[0] == 0
    run(kept_threads, [copy])
    (expected,) = shown(DATABASES, "A new consumer", "json")
    assert masked(copy.arrived()[len(before) :]) == masked(expected.splitlines())
    newer, older = (json.loads(line)["updated"] for line in (copy.arrived()[-1], before[-1]))
    assert Timestamp.parse(newer) > Timestamp.parse(older)


def columns(printed: str) -> list[str]:
    """Return the lines of a table that a command prints, whatever the width of its columns."""
    return [re.sub(" +", " ", line) for line in printed.splitlines()]


def console(page: Page, heading: str) -> tuple[str, str]:
    """Return the only command below a heading, and what it prints there."""
    (text,) = shown(page, heading, "console")
    command, _, printed = text.partition("\n")
    return command, printed


def assert_same(source: str, target: str) -> None:
    found = []
    for uri in (source, target):
        with psycopg.connect(uri) as connection:
            found.append(connection.execute("SELECT id, name, city FROM customers ORDER BY id").fetchall())
    assert found[0] == found[1] != []
