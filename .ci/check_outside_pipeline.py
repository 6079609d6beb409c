"""Run the pipeline that the plugin `shelf` publishes twice, and check its file. check_outside.py starts this."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres


def main() -> int:
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres() as server:
        with psycopg.connect(server.uri(), autocommit=True) as database:
            file = Path(name) / "shelf.db"
            database.execute("CREATE TABLE book (id int PRIMARY KEY, title text)")
            database.execute("CREATE TABLE empty (id int PRIMARY KEY)")
            database.execute("INSERT INTO book SELECT id, 'title ' || id FROM generate_series(1, 1000) AS id")
            run(server.uri(), file)
            database.execute("UPDATE book SET title = 'new' WHERE id <= 3")
            database.execute("DELETE FROM book WHERE id = 5")
            run(server.uri(), file)
            rows = database.execute("SELECT id, title FROM book").fetchall()
        check(file, dict(rows))
    return 0


def run(source: str, file: Path) -> None:
    variables = {"SHELF_SOURCE": source, "SHELF_TABLES": "public.book,public.empty", "SHELF_SINK": f"shelf://{file}"}
    command = [str(Path(sys.executable).with_name("cdc")), "run", "shelf", "--once", "--state", str(file.parent)]
    subprocess.run(command, env={**os.environ, **variables}, check=True)


def check(file: Path, expected: dict[int, str]) -> None:
    """Check that the last versions are the rows of the table, and that marks are true and in every topic."""
    versions: dict[int, str | None] = {}
    marks: dict[str, list[str]] = {"book": [], "empty": []}
    messages = list(sqlite3.connect(file).execute("SELECT topic, key, value FROM messages ORDER BY sequence"))
    for topic, key, value in messages:
        message = json.loads(value)
        if key is None:
            marks[topic].append(message["resolved"])
        else:
            assert not any(message["updated"] <= mark for mark in marks["book"]), f"late: {key} {value}"
            (row,) = json.loads(key)
            versions[row] = None if message["after"] is None else message["after"]["title"]
    assert len(messages) == 1004 + len(marks["book"]) + len(marks["empty"]), len(messages)
    assert {row: title for row, title in versions.items() if title is not None} == expected
    assert versions[5] is None
    assert len(marks["book"]) >= 2
    assert marks["book"] == sorted(marks["book"]) == marks["empty"]


if __name__ == "__main__":
    sys.exit(main())
