"""Queries that are watched: evaluated over batches of rows, in order and for each version of the table."""

from __future__ import annotations

import json

import psycopg
import pytest
from cdc_testing.documented_role import documented
from cdc_testing.kept_spark import KeptSpark

from cdc_core import BadRowError, watch


@pytest.mark.slow
def test_a_query_is_watched_through_a_change_of_its_table(database: str, kept_spark: KeptSpark) -> None:
    query = "SELECT id, 10 / n AS tenth FROM t WHERE id > 1"
    kept_spark.close()  # a watch refuses a session that is not its own
    with psycopg.connect(database, autocommit=True) as sql, kept_spark.lent():
        sql.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric(4,1))")
        sql.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 3) g")
        with watch(source=documented(database), query=query) as rows:
            scanned = [json.loads(next(rows).value or b"") for _ in range(2)]
            assert [(row["id"], row["tenth"]) for row in scanned] == [(2, 5), (3, pytest.approx(10 / 3))]
            sql.execute("UPDATE t SET n = 4 WHERE id < 3")
            assert next(rows).key == b"[2]"
            sql.execute("ALTER TABLE t ADD COLUMN v text")
            sql.execute("UPDATE t SET n = 5 WHERE id = 3")
            assert json.loads(next(rows).value or b"") == {"id": 3, "tenth": 2}
            sql.execute("UPDATE t SET n = 0 WHERE id = 3")
            with pytest.raises(BadRowError, match=r"with key {'id': 3}.*cannot be delivered: .*10 / n"):
                next(rows)
