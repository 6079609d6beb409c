"""The history that the database recorded, as commits for validators."""

from __future__ import annotations

import psycopg
from cdc_testing.history import commits, record, recorded


def test_present_rows_are_the_first_commit() -> None:
    versions: dict[str, list[str | None]] = {"[1]": ["(1,a)", "(1,b)"], "[2]": ["(2,c)", None], "[3]": [None]}
    assert commits("t", versions, {"[1]"}) == [
        [("t", ("[1]",), {"row": "(1,a)"}), ("t", ("[2]",), None), ("t", ("[3]",), None)],
        [("t", ("[1]",), {"row": "(1,b)"})],
        [("t", ("[2]",), {"row": "(2,c)"})],
        [("t", ("[2]",), None)],
        [("t", ("[3]",), None)],
    ]


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
