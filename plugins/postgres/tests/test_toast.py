from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.types import PgColumn, TableVersion
from cdc_rangefeed_postgres.unchanged_toast import completed
from cdc_testing.decoding import PLAIN, RELATION, T, V, decoder_of, read, rows_of, transaction, version_of
from cdc_testing.pgmessages import UNCHANGED, delete, insert, log, relation, update

from cdc_core import RowBatch, TerminalRangefeedError


class _Table:
    """A lookup in a table with these values of column v by id. It remembers what it was asked."""

    def __init__(self, rows: dict[int, str]) -> None:
        self._rows = rows
        self.sized: list[list[int]] = []
        self.read: list[list[int]] = []

    def sizes(self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]) -> np.ndarray:
        assert (version, tuple(columns)) == (PLAIN, ("v",))
        self.sized.append(keys.field("id").to_pylist())
        return np.array([len(self._rows.get(id_, "")) for id_ in self.sized[-1]], np.int64)

    def values(
        self, version: TableVersion, keys: pa.StructArray, columns: Sequence[str]
    ) -> tuple[np.ndarray, pa.StructArray]:
        assert (version, tuple(columns)) == (PLAIN, ("v",))
        self.read.append(keys.field("id").to_pylist())
        values = pa.array([self._rows.get(id_) for id_ in self.read[-1]], pa.string())
        found = np.array([id_ in self._rows for id_ in self.read[-1]])
        return found, pa.StructArray.from_arrays([values], names=["v"])


def unavailable_in(batches: Iterable[RowBatch]) -> list[list[str] | None]:
    return [row.get("unavailable") for batch in batches for row in batch.batch.to_pylist()]


def test_an_unchanged_value_comes_from_the_old_row() -> None:
    assert read(update(T, "1", UNCHANGED, old=["1", "big"])) == [("UPDATE", 1, (1, "big"))]
    assert read(update(T, "2", UNCHANGED, old=["1", "big"])) == [("DELETE", 1, None), ("INSERT", 2, (2, "big"))]


def test_an_unchanged_key_column_comes_from_the_old_key() -> None:
    version = version_of(PgColumn("id", 25), V)
    changes = transaction(relation(T, version.columns), update(T, UNCHANGED, "b", key=["big", None]))
    assert rows_of(decoder_of(versions={T: [version]}).decode(log(*changes))) == [("UPDATE", "big", ("big", "b"))]


def test_an_unchanged_value_comes_from_an_earlier_row_of_the_key() -> None:
    messages = [RELATION, *transaction(insert(T, "1", "big"), insert(T, "2", "other"))]
    for _ in range(2):
        messages += transaction(update(T, "1", UNCHANGED))
    assert [row[2] for row in rows_of(decoder_of().decode(log(*messages)))] == [
        (1, "big"),
        (2, "other"),
        (1, "big"),
        (1, "big"),
    ]


def test_an_unchanged_value_comes_from_a_superseded_row_of_the_transaction() -> None:
    assert read(update(T, "1", "big"), update(T, "1", UNCHANGED)) == [("UPDATE", 1, (1, "big"))]


def test_a_value_that_no_earlier_row_has_is_unavailable() -> None:
    messages = [RELATION]
    for number in (1, 2):
        messages += transaction(update(T, str(number), UNCHANGED))
    messages += transaction(delete(T, key=["1", None]), update(T, "2", "small"))
    batches = list(decoder_of().decode(log(*messages)))
    assert rows_of(batches) == [
        ("UPDATE", 1, (1, None)),
        ("UPDATE", 2, (2, None)),
        ("DELETE", 1, None),
        ("UPDATE", 2, (2, "small")),
    ]
    assert unavailable_in(batches) == [["v"], ["v"], None, None]


def test_a_batch_in_which_every_value_is_known_has_no_column_for_unavailable_ones() -> None:
    messages = [RELATION, *transaction(insert(T, "1", "big"))]
    (batch,) = decoder_of().decode(log(*messages, *transaction(update(T, "1", UNCHANGED))))
    assert "unavailable" not in batch.batch.schema.names


def test_a_value_from_before_a_delete_is_not_used_for_the_same_key_after_it() -> None:
    messages = [RELATION, *transaction(insert(T, "1", "old")), *transaction(delete(T, key=["1", None]))]
    messages += transaction(update(T, "1", UNCHANGED, key=["2", None]))
    batches = list(decoder_of().decode(log(*messages)))
    assert rows_of(batches)[-1] == ("INSERT", 1, (1, None))
    assert unavailable_in(batches) == [None, None, None, ["v"]]


def test_a_key_column_that_the_log_lacks_is_terminal() -> None:
    version = version_of(PgColumn("id", 25), V)
    changes = transaction(relation(T, version.columns), update(T, UNCHANGED, "b"))
    with pytest.raises(TerminalRangefeedError, match=r"large value of the key column id\..*REPLICA IDENTITY FULL"):
        list(decoder_of(versions={T: [version]}).decode(log(*changes)))


def test_unavailable_values_are_looked_up_once_for_each_key() -> None:
    messages = [RELATION]
    for number in (1, 2, 1):
        messages += transaction(update(T, str(number), UNCHANGED))
    table = _Table({1: "one", 2: "two"})
    batches = list(decoder_of(lookup=table).decode(log(*messages)))
    assert [row[2] for row in rows_of(batches)] == [(1, "one"), (2, "two"), (1, "one")]
    assert table.sized == table.read == [[1, 2]]
    assert unavailable_in(batches) == [None] * 3


def test_a_version_of_a_row_that_is_gone_is_delivered_without_the_value() -> None:
    messages = [RELATION, *transaction(update(T, "1", UNCHANGED), update(T, "2", UNCHANGED))]
    messages += transaction(delete(T, key=["1", None]))
    batches = list(decoder_of(lookup=_Table({2: "two"})).decode(log(*messages)))
    assert rows_of(batches) == [("UPDATE", 1, (1, None)), ("UPDATE", 2, (2, "two")), ("DELETE", 1, None)]
    assert unavailable_in(batches) == [["v"], None, None]


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([10, 10, 10], [[0, 1, 2]]),
        ([60, 60, 60], [[0], [1], [2]]),
        ([500, 1, 1], [[0], [1, 2]]),
        ([1, 99, 1, 500], [[0, 1], [2], [3]]),
    ],
)
def test_values_are_looked_up_in_pieces_that_are_taken_one_by_one(sizes: list[int], parts: list[list[int]]) -> None:
    messages: list[bytes] = [RELATION, *transaction(insert(T, "100", "first"))]
    for number in range(len(sizes)):
        messages += transaction(update(T, str(number), UNCHANGED), insert(T, str(number + 200), "between"))
    table = _Table({number: "x" * size for number, size in enumerate(sizes)})
    decoder = decoder_of(lookup=table)
    # One batch from the log, so that its pieces are those of the lookup alone.
    (rows,) = decoder_of().decode(log(*messages), target_bytes=1 << 20)
    pieces = completed(rows, PLAIN, wanted=np.ones(len(rows), np.bool_), lookup=table, target_bytes=100)
    taken = []
    for count, piece in enumerate(pieces, 1):
        assert table.read == parts[:count]
        taken.append(piece)
    assert table.read == parts
    ids = [row["id"] for piece in taken for row in piece.column("key").to_pylist()]
    assert ids == rows.column("key").field("id").to_pylist()
    assert unavailable_in(taken) == [None] * len(rows)
    looked_up = rows_of(decoder.decode(log(*messages), target_bytes=100))
    assert [row[2] for row in looked_up if row[1] < 100] == [(n, "x" * size) for n, size in enumerate(sizes)]
