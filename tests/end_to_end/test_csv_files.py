"""A table with columns of every type is copied through CSV files without a change."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.pgvalues import BINARY_MAKERS, TEXT_MAKERS, TYPES
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads
from psycopg import sql

pytestmark = pytest.mark.slow

MAKERS = {**BINARY_MAKERS, **TEXT_MAKERS}
NOT_SQL = {"pair", "nest", "lone", "pair[]", "json[]", "jsonb[]", "box[]"}
"""Composites are JSON, arrays of boxes have semicolons, and arrays of JSON have ambiguous brackets."""
COLUMNS = {f"c{number}": type_ for number, type_ in enumerate(MAKERS) if type_ not in NOT_SQL}
ROWS = 60


def value(type_: str, chance: random.Random) -> str | None:
    if chance.random() < 0.15:
        return None
    while True:
        text = MAKERS[type_](chance)
        if not (type_.endswith(("[]", "positives")) and text.startswith("[")):  # Bounds of arrays are lost.
            return text


def test_a_table_of_every_type_is_copied(database: str, tmp_path: Path, kept_threads: KeptThreads) -> None:
    chance = random.Random(6)
    options = {"initial_scan": "only", "updated": False, "resolved": False, "csv_header": True, "file_size": "8KB"}
    feed = Feed(tmp_path, database, ["t"], options=options, format_="csv")
    with psycopg.connect(database, autocommit=True) as connection, feed:
        connection.execute(TYPES)
        columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
        connection.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")  # type: ignore[arg-type]
        marks = sql.SQL(", ").join(sql.SQL("%s::text::") + sql.SQL(type_) for type_ in COLUMNS.values())  # type: ignore[arg-type]
        for key in range(ROWS):
            values: list[Any] = [value(type_, chance) for type_ in COLUMNS.values()]
            connection.execute(sql.SQL("INSERT INTO t VALUES (%s, {})").format(marks), [key, *values])
        feed.once(kept_threads)
        files = sorted(feed.files.rglob("*.csv"))
        assert len(files) > 1
        assert not list(feed.files.rglob("*.RESOLVED"))
        connection.execute("CREATE TABLE copied (LIKE t)")
        for file in files:
            with connection.cursor().copy("COPY copied FROM STDIN WITH (FORMAT csv, HEADER match)") as copy:
                copy.write(file.read_bytes())
        assert connection.execute("SELECT count(*) FROM copied").fetchone() == (ROWS,)
        for name, type_ in COLUMNS.items():
            different = connection.execute(
                sql.SQL(
                    "SELECT id, t.{0}::text, copied.{0}::text FROM t FULL JOIN copied USING (id)"
                    " WHERE t.{0}::text IS DISTINCT FROM copied.{0}::text"
                ).format(sql.Identifier(name))
            ).fetchall()
            lines = "json" in type_ or type_ == "document"
            assert [row for row in different if not lines or str(row[1]).split() != str(row[2]).split()] == [], type_
