"""Many tables, columns and rows at once: every row arrives, and no process grows with them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.peaks import peaks, peaks_of_scan_and_log
from cdc_testing.runs import Feed

pytestmark = pytest.mark.slow

MB = 1_000_000
TABLES = 2000
COLUMNS = 1600
ROWS = 1_000_000


def delivered(feed: Feed) -> Counter[str]:
    """Return how many rows each table has in the files."""
    paths = feed.files.rglob("*.ndjson")
    return Counter({path.name: path.read_bytes().count(b"\n") for path in paths})


def test_a_transaction_over_two_thousand_tables(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for first in range(0, TABLES, 500):  # a transaction holds a lock for each table
            connection.execute(
                f"DO $$ BEGIN FOR n IN {first}..{first + 499} LOOP"
                " EXECUTE format('CREATE TABLE items_%s (id bigint PRIMARY KEY, n bigint)', n);"
                " EXECUTE format('INSERT INTO items_%s VALUES (1, %s), (2, %s)', n, n, n); END LOOP; END $$"
            )
        with Feed(tmp_path, database, ["public.*"]) as feed:
            change = (
                f"DO $$ BEGIN FOR n IN 0..{TABLES - 1} LOOP"
                " EXECUTE format('UPDATE items_%s SET n = -n WHERE id = 1', n); END LOOP; END $$"
            )
            found = peaks_of_scan_and_log(feed, connection, database, change)
    assert delivered(feed).total() == 3 * TABLES
    assert max(found.values()) < 700 * MB


def test_a_table_with_as_many_columns_as_there_can_be(database: str, tmp_path: Path) -> None:
    names = [f"column_{number}" for number in range(1, COLUMNS)]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, {', '.join(f'{name} int' for name in names)})")
        connection.execute(
            f"INSERT INTO items SELECT n, {', '.join(f'n + {number}' for number in range(1, COLUMNS))}"
            " FROM generate_series(1, 1000) n"
        )
        with Feed(tmp_path, database, ["items"]) as feed:
            found = peaks_of_scan_and_log(feed, connection, database, "UPDATE items SET column_7 = -column_7")
    rows = [
        json.loads(line)["after"]
        for path in sorted(feed.files.rglob("*.ndjson"), key=lambda path: path.name)
        for line in path.read_text().splitlines()
    ]
    assert len(rows) == 2000
    assert {len(row) for row in rows} == {COLUMNS}
    assert [row["column_7"] for row in rows] == [*range(8, 1008), *(-n for n in range(8, 1008))]
    assert max(found.values()) < 700 * MB


def test_a_transaction_of_millions_of_rows(database: str, tmp_path: Path, kept_spark: KeptSpark) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, note text)")
        with Feed(tmp_path, database, ["items"]) as feed:
            feed.once(kept_spark)
            connection.execute("INSERT INTO items SELECT n, n, 'note ' || n FROM generate_series(1, %s) n", [ROWS])
            found = peaks(feed)
    assert delivered(feed).total() == ROWS
    assert max(found.values()) < 700 * MB
