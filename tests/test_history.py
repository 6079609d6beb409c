"""The validator of histories itself: it finds every way in which what arrived is not what happened."""

from __future__ import annotations

import psycopg
import pytest
from cdc_testing.history import HistoryValidator, record, recorded

A, B, C = "(1,a)", "(1,b)", "(1,c)"
Arrival = tuple[str | None, str | None]


def failures(versions: list[str | None], *arrivals: Arrival, scanned: bool = False, diff: bool = True) -> list[str]:
    validator = HistoryValidator({"[1]": versions}, frozenset({"[1]"} if scanned else ()), diff)
    for before, after in arrivals:
        validator.note_row("[1]", before, after)
    return validator.failures()


def test_what_happened_passes() -> None:
    assert failures([A, B, None, C], (None, A), (A, B), (B, None), (None, C)) == []


def test_a_scanned_row_may_come_before_or_after_its_log_or_not_at_all() -> None:
    assert failures([A, B], (None, A), (A, B), scanned=True) == []
    assert failures([A, B], (A, B), (None, B), scanned=True) == []
    assert failures([A, B], (None, B), scanned=True) == [
        "key [1]: (1,b) after None is not what comes next in ['(1,a)', '(1,b)']",
        "key [1]: the last of 2 versions never arrived: (1,b)",
    ]


@pytest.mark.parametrize(
    ("arrivals", "what"),
    [
        ([(None, A), (B, C)], "(1,c) after (1,b)"),
        ([(None, B), (B, C)], "(1,b) after None"),
        ([(None, A), (A, B), (A, C)], "(1,c) after (1,a)"),
        ([(None, A), (None, B), (B, C)], "(1,b) after None"),
        ([(None, A), (A, B), (B, None)], "None after (1,b)"),
        ([(None, A), (A, B), (B, C), (C, "(1,d)")], "(1,d) after (1,c)"),
        ([(None, A), (A, B), (B, C), (A, B)], "(1,b) after (1,a)"),
    ],
    ids=["lost", "lost first", "wrong before", "no before", "wrong delete", "invented", "back again"],
)
def test_a_sabotaged_history_is_found(arrivals: list[Arrival], what: str) -> None:
    found = failures([A, B, C], *arrivals)
    assert found[0] == f"key [1]: {what} is not what comes next in ['(1,a)', '(1,b)', '(1,c)']"


def test_a_last_version_that_never_arrived_is_found() -> None:
    assert failures([A, B], (None, A)) == ["key [1]: the last of 2 versions never arrived: (1,b)"]
    assert failures([A, None], (None, A)) == ["key [1]: the last of 2 versions never arrived: None"]
    assert failures([A]) == ["key [1]: the last of 1 versions never arrived: (1,a)"]


def test_a_key_that_never_existed_is_found() -> None:
    validator = HistoryValidator({})
    validator.note_row("[7]", None, "(7,x)")
    assert validator.failures() == ["key [7]: (7,x) after None is not what comes next in []"]


def test_without_diff_the_version_before_is_not_looked_at() -> None:
    assert failures([A, B], (None, A), (None, B), diff=False) == []


def test_the_database_records_what_is_committed_and_of_a_transaction_the_last(database: str) -> None:
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
