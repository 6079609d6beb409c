from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.toast import Lookup
from cdc_rangefeed_postgres.types import PgColumn, TableVersion
from cdc_testing.decoding import (
    RELATION,
    T,
    V,
    decoder_of,
    read,
    rows_of,
    transaction,
    version_of,
)
from cdc_testing.logprobe import LogProbe
from cdc_testing.pgmessages import UNCHANGED, delete, insert, log, relation, update


@pytest.fixture
def probe(database: str) -> Iterator[LogProbe]:
    with LogProbe(database) as probe:
        yield probe


def _lookup_of(rows: dict[int, str], asked: list[tuple[Any, ...]] | None = None) -> Lookup:
    def lookup(
        version: TableVersion, keys: pa.StructArray, columns: tuple[str, ...]
    ) -> tuple[np.ndarray, pa.StructArray]:
        ids = keys.field("id").to_pylist()
        if asked is not None:
            asked.append((version.schema.name.table, ids, columns))
        values = pa.array([rows.get(id_) for id_ in ids], pa.string())
        return np.array([id_ in rows for id_ in ids]), pa.StructArray.from_arrays([values], names=["v"])

    return lookup


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


def test_other_unchanged_values_are_looked_up_once_for_each_key() -> None:
    asked: list[tuple[Any, ...]] = []
    messages = [RELATION]
    for number in (1, 2, 1):
        messages += transaction(update(T, str(number), UNCHANGED))
    batches = decoder_of(lookup=_lookup_of({1: "one", 2: "two"}, asked)).decode(log(*messages))
    assert [row[2] for row in rows_of(batches)] == [(1, "one"), (2, "two"), (1, "one")]
    assert asked == [("t", [1, 2], ("v",))]


def test_a_value_from_before_a_delete_is_not_used_for_the_same_key_after_it() -> None:
    lookup = _lookup_of({1: "moved"})
    messages = [RELATION, *transaction(insert(T, "1", "old")), *transaction(delete(T, key=["1", None]))]
    messages += transaction(update(T, "1", UNCHANGED, key=["2", None]))
    assert rows_of(decoder_of(lookup=lookup).decode(log(*messages)))[-1] == ("INSERT", 1, (1, "moved"))


def test_versions_without_their_value_are_left_out_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decoder = decoder_of(lookup=_lookup_of({2: "two"}))
    messages = [RELATION, *transaction(update(T, "1", UNCHANGED), update(T, "2", UNCHANGED))]
    messages += transaction(delete(T, key=["1", None]))
    with caplog.at_level(logging.WARNING):
        assert rows_of(decoder.decode(log(*messages))) == [("UPDATE", 2, (2, "two")), ("DELETE", 1, None)]
        decoder.decode(log(*transaction(update(T, "1", UNCHANGED))))
    assert decoder.incomplete == 2
    (record,) = caplog.records
    assert "ALTER TABLE public.t REPLICA IDENTITY FULL" in record.getMessage()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_real_log_with_large_values(probe: LogProbe, identity: str) -> None:
    probe.execute("CREATE TABLE t (id int PRIMARY KEY, v text, n int)")
    probe.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    probe.execute("INSERT INTO t SELECT g, repeat(g::text, 5000), 0 FROM generate_series(1, 3) g")
    probe.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    probe.watch("t")
    probe.execute("UPDATE t SET n = 1 WHERE id < 3")
    probe.execute("UPDATE t SET id = 4 WHERE id = 2")

    def lookup(
        version: TableVersion, keys: pa.StructArray, columns: tuple[str, ...]
    ) -> tuple[np.ndarray, pa.StructArray]:
        ids = keys.field("id").to_pylist()
        values = [probe.scan(version, columns, where=f"id = {id_}") for id_ in ids]
        empty = pa.array([None], values[0].type)
        return np.array([len(row) == 1 for row in values]), pa.concat_arrays(
            [row if len(row) else empty for row in values]
        )

    rows = [
        (op, key, after and (after[1][:1], len(after[1])))
        for op, key, after in rows_of(probe.log(binary=True, lookup=lookup))
    ]
    first = [("UPDATE", 1, ("1", 5000))]
    moved = [("DELETE", 2, None), ("INSERT", 4, ("2", 5000))]
    # Key 2 is gone when it is looked up: with only keys in the log its first version cannot be completed.
    assert rows == first + ([("UPDATE", 2, ("2", 5000))] if identity == "FULL" else []) + moved
