"""From PostgreSQL to Avro object container files."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pytest
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads

pytestmark = pytest.mark.slow

ROWS = 2000


def records(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def test_files_contain_every_change_and_resolved_mark(database: str, tmp_path: Path, kept_threads: KeptThreads) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            'CREATE TABLE items (id bigint PRIMARY KEY, "größe" text, price numeric(10,2), day date, at timestamptz,'
            " tags text[])"
        )
        connection.execute(
            "INSERT INTO items SELECT n, 'item ' || n, n / 4.0, date '2020-01-31', '2020-01-31 12:00:00.5+02',"
            f" ARRAY['a', NULL, n::text] FROM generate_series(1, {ROWS}) n"
        )
        feed = Feed(tmp_path, database, ["items"], options={"avro_codec": "deflate", "avro_special_values": "string"})
        feed.toml.write_text(feed.toml.read_text().replace("sink = ", 'format = "avro"\nsink = '))
        with feed:
            feed.once(kept_threads)
            connection.execute("UPDATE items SET price = 'NaN', tags = NULL WHERE id = 1")
            connection.execute("DELETE FROM items WHERE id = 2")
            feed.once(kept_threads)
    files = sorted(feed.files.rglob("*.avro"))
    rows = [row for path in files for row in records(path)]
    assert len(rows) == ROWS + 2
    by_id = {row["key"]["id"]: row["after"] for row in rows}
    plain = {"day": date(2020, 1, 31), "at": datetime(2020, 1, 31, 10, 0, 0, 500_000, UTC)}
    assert by_id[1] == {"id": 1, "gr_u00f6__u00df_e": "item 1", "price": "NaN", "tags": None, **plain}
    assert by_id[2] is None
    expected = {"gr_u00f6__u00df_e": "item 3", "price": Decimal("0.75"), "tags": ["a", None, "3"]}
    assert by_id[3] == {"id": 3, **expected, **plain}
    latest = max(row["updated"] for row in rows)
    marks = [records(path) for path in sorted(feed.files.rglob("*.RESOLVED"))]
    assert max(mark["resolved"] for (mark,) in marks) >= latest


def test_a_label_that_is_added_to_an_enum_is_written(database: str, tmp_path: Path, kept_threads: KeptThreads) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TYPE colour AS ENUM ('red', 'green')")
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, c colour)")
        connection.execute("INSERT INTO items VALUES (1, 'red')")
        feed = Feed(tmp_path, database, ["items"], options={"avro_enum": "enum"})
        feed.toml.write_text(feed.toml.read_text().replace("sink = ", 'format = "avro"\nsink = '))
        with feed:
            feed.once(kept_threads)
            connection.execute("INSERT INTO items VALUES (2, 'green')")
            connection.execute("ALTER TYPE colour ADD VALUE 'blue'")
            connection.execute("INSERT INTO items VALUES (3, 'blue')")
            feed.once(kept_threads)
    files = sorted(feed.files.rglob("*.avro"))
    rows = [row["after"] for path in files for row in records(path)]
    assert rows == [{"id": 1, "c": "red"}, {"id": 2, "c": "green"}, {"id": 3, "c": "blue"}]
