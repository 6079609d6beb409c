"""Sections of tables, from PostgreSQL through Spark: what arrives is what a reference gives for each change."""

from __future__ import annotations

import hmac
import json
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.files import delivered
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.shown_secrets import shown_secrets

pytestmark = pytest.mark.slow

KEY = "a-key-of-many-characters"
SECTIONS = """
[changefeed.test.table."public.users"]
columns = { exclude = ["secret"] }
where = "active AND length(email) > 6"
mask = { email = "hash", phone = "redact", name = { truncate = 3 }, age = "redact" }
[changefeed.test.table.logins]
columns = { include = ["at_host", "email"] }
mask = { email = "hash", at_host = { truncate = 1 } }
"""
OPTIONS = {"mask_key": "${MASK_KEY}"}
TABLES = ("users", "logins", "items")
USERS = "id int PRIMARY KEY, email text, phone text, name text, age int, active boolean, secret text"
LOGINS = "email text PRIMARY KEY, at_host text, note text"

Row = dict[str, Any]


def hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()


def shown(table: str, row: Row | None) -> Row | None:
    """Return what a row of *table* looks like at the destination."""
    if row is None or table == "items":
        return row
    if table == "logins":
        host = row["at_host"]
        return {"at_host": None if host is None else host[:1], "email": hashed(row["email"])}
    masked = {
        "id": row["id"],
        "email": hashed(row["email"]),
        "phone": None if row["phone"] is None else "***",
        "name": None if row["name"] is None else row["name"][:3],
        "age": None,
        "active": row["active"],
    }
    return masked | {name: row[name] for name in row if name == "added"}


def key_of(table: str, row: Row) -> list[Any]:
    return [hashed(row["email"])] if table == "logins" else [row["id"]]


class Tables:
    """The tables, and what each change of them is to arrive as: (table, key, before, after)."""

    def __init__(self, connection: psycopg.Connection[Any], seed: int) -> None:
        self.connection = connection
        self.rng = random.Random(seed)
        self.rows: dict[str, dict[Any, Row]] = {table: {} for table in TABLES}
        self.due: list[tuple[str, list[Any], Row | None, Row | None]] = []
        connection.execute(f"CREATE TABLE users ({USERS}); CREATE TABLE logins ({LOGINS})")
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
        for table in TABLES:
            connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")

    def text(self) -> str | None:
        return self.rng.choice([None, "", "ann", "ä€𝄞x", "o'neil@example.org", "bob@example.org"])

    def row(self, table: str, key: Any) -> Row:
        if table == "items":
            return {"id": key, "name": self.text()}
        if table == "logins":
            return {"email": key, "at_host": self.text(), "note": "SECRET"}
        names = {name: self.text() for name in ("email", "phone", "name")}
        active = self.rng.choice([True, True, False, None])
        return {"id": key, **names, "age": self.rng.randrange(90), "active": active, "secret": "SECRET"}

    def change(self) -> None:
        table = self.rng.choice(TABLES)
        number = self.rng.randrange(30)
        key = f"SECRET{number}@example.org" if table == "logins" else number
        name = "email" if table == "logins" else "id"
        old = self.rows[table].get(key)
        if old is not None and self.rng.random() < 0.3:
            self.connection.execute(f"DELETE FROM {table} WHERE {name} = %s", [key])
            del self.rows[table][key]
            self.arrive(table, old, None)
            return
        new = self.row(table, key)
        values = list(new.values())
        if old is None:
            self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(values))})", values)
        else:
            sets = ", ".join(f"{column} = %s" for column in new)
            self.connection.execute(f"UPDATE {table} SET {sets} WHERE {name} = %s", [*values, key])
        self.rows[table][key] = new
        self.arrive(table, old, new)

    def arrive(self, table: str, old: Row | None, new: Row | None) -> None:
        if table == "users" and new is not None and not holds(new):
            return
        some = new or old
        assert some is not None
        self.due.append((table, key_of(table, some), shown(table, old), shown(table, new)))

    def scanned(self) -> list[tuple[str, list[Any], None, Row | None]]:
        return [
            (table, key_of(table, row), None, shown(table, row))
            for table, rows in self.rows.items()
            for row in rows.values()
            if table != "users" or holds(row)
        ]


def holds(row: Row) -> bool:
    return bool(row["active"]) and row["email"] is not None and len(row["email"]) > 6


def assert_same(found: list[Any], due: list[Any]) -> None:
    """Assert that each key of each table has the changes that are due, in their order."""
    given, wanted = by_key(found), by_key(due)
    for key in given.keys() | wanted.keys():
        assert given.get(key) == wanted.get(key), key


def by_key(changes: list[Any]) -> dict[str, list[Any]]:
    keys: dict[str, list[Any]] = {}
    for table, key, *images in changes:
        keys.setdefault(f"{table} {key}", []).append(images)
    return keys


def arrived(feed: Feed) -> list[tuple[str, list[Any], Row | None, Row | None]]:
    """Return each change once: a step that meets a new version of one table delivers those of others again."""
    rows = {(row["updated"], table, str(row["key"])): row for table in TABLES for row in delivered(feed.files, table)}
    return [
        (table, row["key"], row["before"], row["after"])
        for (_, table, _), row in sorted(rows.items(), key=lambda each: each[0])
    ]


def test_sections_of_two_tables_deliver_what_a_reference_gives(
    database: str, tmp_path: Path, kept_spark: KeptSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)
    with psycopg.connect(database, autocommit=True) as connection:
        tables = Tables(connection, seed=11)
        for _ in range(60):
            tables.change()
        options = {**OPTIONS, "diff": True, "schema_change_policy": "nobackfill"}
        with Feed(tmp_path, database, TABLES, sections=SECTIONS, options=options) as feed:
            feed.once(kept_spark)
            assert_same(arrived(feed), tables.scanned())
            tables.due = tables.scanned()
            for _ in range(150):
                tables.change()
            connection.execute("ALTER TABLE users ADD COLUMN added text")
            connection.execute("INSERT INTO users VALUES (100, 'eve@example.org', '1', 'eve', 1, true, 'SECRET', 'x')")
            new = {"id": 100, "email": "eve@example.org", "phone": "1", "name": "eve", "age": 1, "active": True}
            tables.arrive("users", None, new | {"added": "x"})
            feed.once(kept_spark)
            assert_same(arrived(feed), tables.due)
            assert len(tables.due) > 100
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if shown_secrets(path.read_bytes(), ["SECRET", KEY])]
    assert not [path for path in kept_spark.directory.rglob("*.log") if shown_secrets(path.read_bytes(), [KEY])]


def test_a_failing_condition_and_a_large_row_show_no_masked_value(
    database: str, tmp_path: Path, kept_spark: KeptSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)
    sections = """
[changefeed.test.table.users]
columns = { exclude = ["secret"] }
where = "100 / age > 1"
mask = { email = "hash", phone = "redact" }
"""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE users ({USERS}); CREATE TABLE items (id int PRIMARY KEY)")
        connection.execute("INSERT INTO users VALUES (1, 'SECRET', 'SECRET', 'ann', 0, true, 'SECRET')")
        connection.execute(
            "INSERT INTO users VALUES (2, 'SECRET', 'SECRET', 'bob' || repeat('x', 200000), 5, true, 'SECRET')"
        )
        connection.execute("INSERT INTO users VALUES (3, 'SECRET', 'SECRET', 'eve', 5, true, 'SECRET')")
        dead = {"on_error": "dead_letter", "dead_letter": f"file://{tmp_path}/dead", "max_row_bytes": "100KB"}
        with Feed(tmp_path, database, ["users", "items"], sections=sections, options={**OPTIONS, **dead}) as feed:
            feed.once(kept_spark)
            connection.execute("DELETE FROM users WHERE id IN (1, 3)")
            feed.once(kept_spark)
            rows = delivered(feed.files, "users")
            letters = delivered(tmp_path / "dead", "test_dead_letters")
        altered = Feed(
            tmp_path, database, ["users", "items"], sections=sections.replace("> 1", "> 2"), options={**OPTIONS, **dead}
        )
        with altered, pytest.raises(AssertionError, match="status 2"):
            altered.once(kept_spark)
    assert sorted((row["key"], row["after"] and row["after"]["email"]) for row in rows[:1]) == [([3], hashed("SECRET"))]
    assert [(row["key"], row["after"]) for row in rows[1:]] == [([1], None), ([3], None)]
    assert [(letter["after"]["key"], letter["after"]["stage"]) for letter in letters] == [
        ([1], "query"),
        ([2], "source"),
    ]
    assert "WHERE 100 / age > 1" in letters[0]["after"]["error"]
    assert hashed("SECRET") in json.dumps(letters)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if shown_secrets(path.read_bytes(), ["SECRET", KEY])]
    log = altered.log()
    assert "was started with the section of table users (all columns but secret; where 100 / age > 1; masked" in log
    assert "which cannot be changed" in log
