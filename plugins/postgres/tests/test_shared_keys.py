"""Deferrable keys: rows may share one until their transaction ends, and the last change does not say which remains."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cdc_rangefeed_postgres.types import PgColumn
from cdc_testing.decoding import ID, PLAIN, RELATION, US, T, V, decoder_of, rows_of, version_of
from cdc_testing.feeding import caught_up
from cdc_testing.pgmessages import begin, commit, delete, insert, log, relation, update
from cdc_testing.postgres import Sql
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import TerminalRangefeedError

KEYS = st.integers(-2, 1)
VALUES = st.sampled_from([None, "a", "b"])
ROW = tuple[int, str | None]
DRAWN = st.lists(
    st.tuples(st.sampled_from(["insert", "move", "set", "delete"]), st.integers(0, 9), KEYS, VALUES), max_size=9
)


def written(rows: list[ROW], drawn: list[tuple[str, int, int, str | None]]) -> list[bytes]:
    """Change *rows* as *drawn*, so that no key is there twice at the end, and return the messages."""
    messages = []

    def remove(place: int) -> None:
        key, value = rows.pop(place)
        messages.append(delete(T, old=[str(key), value]))

    for verb, number, key, value in drawn:
        place = number % len(rows) if rows else -1
        if verb == "insert":
            rows.append((key, value))
            messages.append(insert(T, str(key), value))
        elif place >= 0 and verb == "delete":
            remove(place)
        elif place >= 0:
            old = rows[place]
            rows[place] = new = (key, old[1]) if verb == "move" else (old[0], value)
            messages.append(update(T, str(new[0]), new[1], old=[str(old[0]), old[1]]))
    while twice := [place for place, row in enumerate(rows) if row[0] in [other[0] for other in rows[:place]]]:
        remove(twice[0] if len(drawn) % 2 else [row[0] for row in rows].index(rows[twice[0]][0]))
    return messages


@given(st.dictionaries(KEYS, VALUES), st.lists(DRAWN, min_size=1, max_size=3))
def test_a_consumer_has_the_rows_of_each_commit(
    start: dict[int, str | None], drawn: list[list[tuple[str, int, int, str | None]]]
) -> None:
    rows, messages, consumer = list(start.items()), [RELATION], dict(start)
    for number, part in enumerate(drawn):
        messages += [begin(100 + number, us=US + number), *written(rows, part), commit()]
    decoder = decoder_of(versions={T: [replace(PLAIN, deferrable=True)]}, diff=True)
    for op, key, after, before in rows_of(decoder.decode(log(*messages))):
        assert before == ((key, consumer[key]) if key in consumer else None), op
        if after is None:
            consumer.pop(key, None)
        else:
            consumer[key] = after[1]
    assert consumer == dict(rows)


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_large_transaction_that_moves_all_keys_is_read_in_parts(database: str, sql: Sql, partitions: int) -> None:
    by = "PARTITION BY HASH (id)" if partitions else ""
    sql.execute(f"CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text) {by}")
    sql.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    for number in range(partitions):
        sql.execute(f"CREATE TABLE t{number} PARTITION OF t FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})")
        sql.execute(f"ALTER TABLE t{number} REPLICA IDENTITY FULL")
    sql.execute("INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 2000) g")
    with caught_up(database, "t", options={"fetch_size": 1 << 16}) as feed:
        with sql.transaction():
            sql.execute("UPDATE t SET id = id + 1")
            sql.execute("UPDATE t SET id = 2003 - id")
            sql.execute("UPDATE t SET id = id + 1, v = v || '!'")
        feed.catch_up()
        assert {key[0]: row["v"] for key, row in feed.rows("public.t").items()} == dict(sql.execute("TABLE t"))


def test_a_row_of_an_earlier_part_that_is_left_is_refused() -> None:
    decoder = decoder_of(versions={T: [replace(PLAIN, deferrable=True)]})
    rows = log(RELATION, begin(100, us=US), insert(T, "1", "a"), insert(T, "1", "b"))
    assert rows_of(decoder.decode(rows)) == [("INSERT", 1, (1, "b"))]
    with pytest.raises(TerminalRangefeedError, match=r"table public\.t: .* the same deferrable key.*Increase"):
        list(decoder.decode(log(delete(T, old=["1", "b"]), commit())))


WIDER = version_of(ID, V, PgColumn("w", 25), number=2)


def test_a_row_is_found_though_the_table_got_a_column_between_two_parts_of_the_transaction() -> None:
    decoder = decoder_of(versions={T: [replace(version, deferrable=True) for version in (PLAIN, WIDER)]})
    assert rows_of(decoder.decode(log(RELATION, begin(100, us=US), insert(T, "1", "a")))) == [("INSERT", 1, (1, "a"))]
    later = log(relation(T, WIDER.columns), delete(T, old=["1", "a", None]), commit())
    assert rows_of(decoder.decode(later)) == [("DELETE", 1, None)]


def test_texts_that_are_not_utf_8_are_compared_as_bytes() -> None:
    decoder = decoder_of(versions={T: [replace(PLAIN, deferrable=True)]})
    rows = [insert(T, "1", b"\xff"), delete(T, old=["1", b"\xff"])]
    assert rows_of(decoder.decode(log(RELATION, begin(100, us=US), *rows, commit()))) == []
