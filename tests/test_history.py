"""The history that the database records."""

from __future__ import annotations

import psycopg
from cdc_testing.history import record, recorded


def test_the_last_version_of_each_committed_transaction_is_recorded(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        record(connection, "t")
        with connection.transaction():
            connection.execute("UPDATE t SET v = 'b'")
            connection.execute("UPDATE t SET v = 'c'")
        with connection.transaction(force_rollback=True):
            connection.execute("UPDATE t SET v = 'never'")
        connection.execute("UPDATE t SET id = 2")
        connection.execute("DELETE FROM t")
        assert recorded(connection) == {"[1]": ["(1,a)", "(1,c)", None], "[2]": ["(2,c)", None]}
