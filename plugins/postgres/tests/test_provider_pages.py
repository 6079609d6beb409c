"""The statements on the pages about PostgreSQL, and on those of each provider, give a changefeed all that it needs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import feed_of
from cdc_testing.postgres import Sql

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [DOCS / "postgres.md", DOCS / "postgres-slots.md", *sorted((DOCS / "providers").glob("*.md"))]
ROLE, OWNER = "provider_reader", "provider_owner"
ENCODED_PASSWORD = "%E2%80%A6"
"""The three dots that stand for a password on the pages."""


def statements_of(block: str) -> list[str]:
    return [statement.strip() for statement in re.sub(r"--.*", "", block).split(";") if statement.strip()]


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL)


def granting(page: Path) -> list[str]:
    """Return the statements in the first block of *page* that grants something."""
    return statements_of(next((block for block in blocks_of(page) if re.search(r"(?m)^GRANT ", block)), ""))


def options(page: Path) -> dict[str, Any]:
    """Return the options of the source in the first changefeed of *page* that has some."""
    blocks = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL))
    feeds = [feed for block in blocks for feed in block.get("changefeed", {}).values()]
    return next((feed["options"] for feed in feeds if "options" in feed), {})


@contextmanager
def roles(sql: Sql) -> Iterator[None]:
    """The owner of the tables, and the role that a provider has beside it; at the end there is none of them."""
    names = (ROLE, OWNER, "rds_replication")
    for name in names[1:]:
        sql.execute(f"CREATE ROLE {name}")
    try:
        yield
    finally:
        for name in names:
            sql.execute(f"DROP OWNED BY {name} CASCADE")
            sql.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("page", [page for page in PAGES if granting(page)], ids=lambda page: page.stem)
def test_the_role_of_the_page_suffices(page: Path, database: str, sql: Sql) -> None:
    statements = granting(page)
    with roles(sql):
        for table in ("orders", "customers"):
            sql.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
            sql.execute(f"ALTER TABLE {table} OWNER TO {OWNER}")
        sql.execute("INSERT INTO orders VALUES (1)")
        if not any("CREATE ROLE" in statement for statement in statements):  # the console creates it
            sql.execute(f"CREATE ROLE {ROLE} LOGIN REPLICATION PASSWORD '…'")
        for statement in statements:
            here = re.sub(r"\bcdc\b", ROLE, statement).replace("shop_owner", OWNER)
            sql.execute(re.sub(r"\bDATABASE shop\b", f"DATABASE {sql.info.dbname}", here).encode())
        uri = re.sub("//.*@", f"//{ROLE}:{ENCODED_PASSWORD}@", database)
        with feed_of(uri, "orders", "customers", options=options(page)) as feed:
            feed.rangefeed.check()
            if "rds_replication" not in "".join(statements):  # which only such a server lets use slots
                feed.start()
                feed.scan()
                assert feed.rows("public.orders") == {(1,): {"id": 1}}


@pytest.mark.parametrize("name", ["postgres.md", "postgres-failover.md"])
def test_the_server_knows_the_settings_of_the_page(name: str) -> None:
    statements = [statement for block in blocks_of(DOCS / name) for statement in statements_of(block)]
    kept = [statement for statement in statements if re.match("ALTER SYSTEM|SELECT|CREATE PUBLICATION", statement)]
    assert len(kept) > 2
    server = CopiedPostgres(settings={"fsync": "off"})
    server.start()
    try:
        with psycopg.connect(server.uri(), autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE TABLE customers (id int PRIMARY KEY)")
            for statement in dict.fromkeys(kept):
                connection.execute(statement.encode())
    finally:
        server.stop()
