from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.types import PgColumn
from cdc_testing.decoding import (
    OTHER,
    RELATION,
    T,
    U,
    decoder_of,
    read,
    rows_of,
    transaction,
    updated_of,
    version_of,
)
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgmessages import delete, insert, log, relation, truncate, update

from cdc_core import ContractError, TerminalRangefeedError, Timestamp


def test_inserts_updates_and_deletes_have_their_images() -> None:
    assert read(insert(T, "1", "a"), update(T, "2", "b"), delete(T, key=["3", None])) == [
        ("INSERT", 1, (1, "a")),
        ("UPDATE", 2, (2, "b")),
        ("DELETE", 3, None),
    ]


def test_before_is_the_old_row_and_null_when_there_was_none() -> None:
    changes = (insert(T, "1", "a"), update(T, "2", "b", old=["2", None]), delete(T, old=["3", "c"]))
    assert read(*changes, diff=True) == [
        ("INSERT", 1, (1, "a"), None),
        ("UPDATE", 2, (2, "b"), (2, None)),
        ("DELETE", 3, None, (3, "c")),
    ]


@pytest.mark.parametrize("old", [{"key": ["1", None]}, {"old": ["1", "a"]}])
def test_a_key_change_is_a_delete_and_an_insert_side_by_side(old: dict[str, Any]) -> None:
    messages = log(*transaction(RELATION, update(T, "2", "a", **old), insert(T, "3", "c")))
    batches = list(decoder_of().decode(messages))
    assert rows_of(batches) == [("DELETE", 1, None), ("INSERT", 2, (2, "a")), ("INSERT", 3, (3, "c"))]
    assert len(set(updated_of(batches))) == 1


def test_an_old_row_with_the_same_key_is_not_a_key_change() -> None:
    assert read(update(T, "1", "b", old=["1", "a"])) == [("UPDATE", 1, (1, "b"))]


def test_before_of_a_key_change_belongs_to_the_delete() -> None:
    assert read(update(T, "2", "b", old=["1", "a"]), diff=True) == [
        ("DELETE", 1, None, (1, "a")),
        ("INSERT", 2, (2, "b"), None),
    ]


def test_the_error_for_diff_without_old_rows_names_the_statement() -> None:
    with pytest.raises(TerminalRangefeedError, match=r'ALTER TABLE "public"\."t" REPLICA IDENTITY FULL'):
        read(update(T, "1", "a"), diff=True)


def test_a_key_of_several_columns_is_in_key_order() -> None:
    version = version_of(PgColumn("b", 25), PgColumn("x", 25), PgColumn("a", 23), key=("a", "b"))
    changes = transaction(relation(T, version.columns), insert(T, "k", "x", "1"), delete(T, key=["m", None, "2"]))
    batches = decoder_of(versions={T: [version]}).decode(log(*changes))
    assert rows_of(batches) == [("INSERT", 1, "k", ("k", "x", 1)), ("DELETE", 2, "m", None)]


def test_each_field_says_whether_it_is_binary_or_text() -> None:
    assert read(insert(T, b"\0\0\0\1", b"a"), insert(T, b"\0\0\0\2", None)) == [
        ("INSERT", 1, (1, "a")),
        ("INSERT", 2, (2, None)),
    ]


def test_alternating_tables_have_one_batch_each() -> None:
    changes = [RELATION, relation(U, OTHER.columns, name="u")]
    for number in range(5):
        changes += [insert(T, str(number), "t"), insert(U, str(number), "u")]
    batches = decoder_of().decode(log(*transaction(*changes)))
    assert [(batch.schema.name.table, len(batch)) for batch in batches] == [("t", 5), ("u", 5)]


def test_batches_have_about_the_requested_size() -> None:
    rows = [insert(T, str(number), "x" * 1000) for number in range(1000)]
    batches = list(decoder_of().decode(log(*transaction(RELATION, *rows)), target_bytes=100_000))
    assert 9 <= len(batches) <= 12
    assert sum(map(len, batches)) == 1000
    assert all(batch.nbytes < 150_000 for batch in batches)


def test_no_messages_and_empty_transactions_have_no_rows() -> None:
    decoder = decoder_of()
    assert not list(decoder.decode(log()))
    assert not list(decoder.decode(log(*transaction())))


def test_large_binary_and_sliced_arrays_are_read_too() -> None:
    messages = log(b"junk", *transaction(RELATION, insert(T, "1", "a"))).slice(1)
    assert rows_of(decoder_of().decode(messages.cast(pa.large_binary()))) == [("INSERT", 1, (1, "a"))]
    assert rows_of(decoder_of().decode(messages)) == [("INSERT", 1, (1, "a"))]


def test_a_truncate_error_names_the_tables_and_the_remedy() -> None:
    remedy = "run once without the table in 'tables', and then list it again"
    with pytest.raises(TerminalRangefeedError, match=rf"tables public\.t, public\.u were truncated, .*{remedy}"):
        read(truncate(T, U))


def test_a_truncate_can_be_passed_over() -> None:
    messages = transaction(RELATION, insert(T, "1", "a"), truncate(T, U), insert(T, "2", "b"))
    rows = rows_of(decoder_of(truncate="keep").decode(log(*messages)))
    assert rows == [("INSERT", 1, (1, "a")), ("INSERT", 2, (2, "b"))]


def test_a_truncate_outside_the_slice_is_ignored() -> None:
    messages = transaction(RELATION, truncate(T), lsn=50)
    assert not list(decoder_of(start_lsn=100).decode(log(*messages)))


def test_messages_that_pgoutput_does_not_write_are_refused() -> None:
    with pytest.raises(ContractError, match="the log has a message of an unknown kind"):
        list(decoder_of().decode(log(b"?")))
    with pytest.raises(ContractError, match="does not have the 2 columns"):
        read(insert(T, "1"))


def test_a_real_log_cut_into_arrays_anywhere_replays_to_the_table(probe: LogProbe) -> None:
    probe.execute("CREATE TABLE t (id int PRIMARY KEY, v text, n int)")
    probe.watch("t")
    for number in range(40):
        probe.transaction(
            f"INSERT INTO t SELECT g, 'v{number}', {number} FROM generate_series({number}, {number + 5}) g"
            " ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v, n = t.n + 1",
            f"UPDATE t SET id = id + 1000 WHERE id = {number}",
            f"DELETE FROM t WHERE id = {number + 3}",
        )
    messages = probe.messages(binary=True)
    for size in (1, 7, 50, len(messages)):
        decoder = probe.decoder()
        table: dict[int, Any] = {}
        latest = Timestamp()
        for offset in range(0, len(messages), size):
            for batch in decoder.decode(messages.slice(offset, size)):
                for row in batch.batch.to_pylist():
                    updated = Timestamp(**row["updated"])
                    assert updated >= latest
                    latest = updated
                    table[row["key"]["id"]] = row["after"]
        current = probe.scan(probe.version("t")).to_pylist()
        assert sorted((row for row in table.values() if row), key=lambda row: row["id"]) == current
        assert decoder.latest >= latest
