"""Slices that are read by one task and delivered by several, divided by key."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cdc_testing.engine import Journal
from cdc_testing.thread_host import ThreadEngine

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.engine.key_parts import divided_by_key
from cdc_core.options import MB, Duration

ORDERS = {
    "read": ("die", "RetryableRangefeedError busy"),
    "read-late": ("die", "RetryableRangefeedError busy"),
    "emit": ("die", "RetryableSinkError busy"),
    "flush": ("die", "RetryableSinkError busy"),
    "before-report": ("die", "RetryableSinkError busy"),
    "resolved": ("RetryableSinkError busy",),
}
TOTAL = 2000


@pytest.mark.parametrize("seed", range(8))
def test_whatever_dies_keys_stay_in_order_and_a_repeated_slice_is_the_same(seed: int, engine: ThreadEngine) -> None:
    chance = random.Random(seed)
    tasks, slices = chance.choice([2, 3, 8]), chance.choice([1, 1, 2, 5])

    def trouble() -> None:
        if chance.random() < 0.5:
            place = chance.choice(list(ORDERS))
            if not engine.script.pending(place):
                engine.script.order(place, chance.choice(ORDERS[place]))

    waits = dict.fromkeys(("retry_backoff", "max_retry_backoff"), Duration(0.01))
    options = {"delivery_tasks": tasks, "max_attempts": 1000, **waits}
    steps = {"total": TOTAL, "rows_per_step": 400, "batch_rows": 30, "slices": slices, "keys": chance.choice([5, 101])}
    assert engine.run(before_step=trouble, options=options, **steps) == 0
    journal = Journal(engine.directory)
    assert journal.faults(total=TOTAL) == []
    assert journal.resolved == sorted(journal.resolved)
    contents = defaultdict(set)
    for _, epoch, step, index, rows in journal.of("rows"):
        contents[epoch, step, index].add(str(rows))
        assert index < max(tasks, slices)
    assert {len(found) for found in contents.values()} == {1}


def test_a_step_with_more_slices_than_tasks_divides_none(engine: ThreadEngine) -> None:
    assert engine.run(options={"delivery_tasks": 2}, slices=5, keys=50, total=1000, rows_per_step=1000) == 0
    found = {index: rows for _, _, step, index, rows in engine.journal.of("rows") if step == 0}
    assert {index: {key % 5 for key, _ in rows} for index, rows in found.items()} == {n: {n} for n in range(5)}


def test_another_attempt_delivers_the_parts_of_a_step_under_their_numbers(engine: ThreadEngine) -> None:
    engine.script.order("before-report", "RetryableSinkError busy")
    assert engine.run(options={"delivery_tasks": 4}, slices=1, keys=50, total=500, rows_per_step=500) == 0
    parts: dict[int, list[list[list[int]]]] = defaultdict(list)
    for _, _, step, index, rows in engine.journal.of("rows"):
        if step == 0:
            parts[index].append(rows)
    assert sorted(parts) == [0, 1, 2, 3]
    assert parts[0][0] == parts[0][1], "it was delivered before the attempt failed"
    assert sum(len(rows[-1]) for rows in parts.values()) == 500


def test_a_failure_of_the_reader_reaches_all_writers_once(engine: ThreadEngine) -> None:
    engine.script.order("read-late", "RetryableRangefeedError the log is busy")
    assert engine.run(options={"delivery_tasks": 4}, slices=1, total=500, rows_per_step=500, batch_rows=50) == 0
    waits = {status.waiting_for for status in engine.statuses if status.waiting_for}
    assert waits == {"the log is busy"}
    assert engine.journal.faults(total=500) == []


@pytest.mark.parametrize("tasks", [0, -1, 201])
def test_a_number_of_tasks_that_cannot_be_kept_is_refused(tasks: int) -> None:
    with pytest.raises(ValueError, match="'delivery_tasks' must be from 1 to 200"):
        ChangefeedOptions(delivery_tasks=tasks)


KEYS: dict[str, tuple[ColumnType, list[Any]]] = {
    "int": (ColumnType(kind=Kind.INT, source="bigint", bits=64), list(range(50))),
    "text": (ColumnType(kind=Kind.STRING, source="text"), [f"ü{n}" for n in range(50)]),
    "bytes": (ColumnType(kind=Kind.BYTES, source="bytea"), [bytes([n, 255]) for n in range(50)]),
    "float": (ColumnType(kind=Kind.FLOAT, source="float8", bits=64), [n / 7 for n in range(50)]),
    "bool": (ColumnType(kind=Kind.BOOL, source="boolean"), [n % 2 == 0 for n in range(50)]),
    "date": (ColumnType(kind=Kind.DATE, source="date"), [2**31 - 1, -(2**31), *range(48)]),
    "time": (ColumnType(kind=Kind.TIME, source="time"), [86_400_000_000, *range(49)]),
    "timestamp": (ColumnType(kind=Kind.TIMESTAMPTZ, source="timestamptz"), [2**63 - 1, -(2**63), *range(48)]),
}


def batch(names: list[str], picks: list[int]) -> RowBatch:
    """Return one row for each of *picks*, whose key has the value of that number in each column of *names*."""
    columns = [Column(name=name, type=KEYS[name][0]) for name in names]
    all_columns = (*columns, Column(name="n", type=KEYS["int"][0]))
    schema = TableSchema(
        name=TableName(database="d", schema="s", table="t"), columns=all_columns, primary_key=tuple(names), version=1
    )
    keys = [pa.array([KEYS[name][1][pick] for pick in picks], schema.column(name).type.arrow) for name in names]
    count = len(picks)
    after = RowBatch.struct(schema.after_type, [*keys, pa.array(range(count), pa.int64())])
    return RowBatch.of(
        schema,
        op=pa.array([Op.UPDATE] * count, pa.uint8()),
        updated=RowBatch.timestamps(pa.array(range(count), pa.int64()), pa.array([0] * count, pa.int32())),
        key=RowBatch.struct(schema.key_type, keys) if keys else pa.array([{}] * count, schema.key_type),
        after=after,
    )


@pytest.mark.parametrize("names", [[name] for name in KEYS] + [["int", "text"], ["bytes", "date"]], ids=str)
def test_all_rows_of_a_key_are_in_one_part_and_in_order(names: list[str]) -> None:
    picks = [int(pick) for pick in np.random.default_rng(1).integers(0, 2 if names == ["bool"] else 50, 500)]
    rows = batch(names, picks)
    parts_of = defaultdict(set)
    seen: list[int] = []
    for given in (rows, rows.slice(100, 37)):
        for part, found in divided_by_key(given, 4):
            numbers = found.column("after").field("n").to_pylist()
            assert numbers == sorted(numbers)
            seen += numbers
            for n in numbers:
                parts_of[picks[n]].add(part)
    assert {len(parts) for parts in parts_of.values()} == {1}
    assert sorted(seen) == sorted([*range(500), *range(100, 137)])
    assert len(set().union(*parts_of.values())) == (2 if names == ["bool"] else 4)


def test_equal_keys_of_another_width_are_in_the_same_part() -> None:
    parts = []
    for bits, source in ((32, "integer"), (64, "bigint")):
        KEYS["narrow"] = ColumnType(kind=Kind.INT, source=source, bits=bits), list(range(50))
        parts.append([part for n in range(50) for part, _ in divided_by_key(batch(["narrow"], [n]), 7)])
    del KEYS["narrow"]
    assert parts[0] == parts[1]


def test_rows_without_a_key_stay_together() -> None:
    [(_, found)] = divided_by_key(batch([], list(range(20))), 8)
    assert len(found) == 20


def test_a_batch_of_large_rows_is_not_copied_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    large = [bytes([n]) * MB for n in range(32)]
    monkeypatch.setitem(KEYS, "large", (ColumnType(kind=Kind.BYTES, source="bytea"), large))
    rows = batch(["large"], list(range(32)))
    before, most, seen = pa.total_allocated_bytes(), 0, 0
    for _, found in divided_by_key(rows, 4):
        seen += len(found)
        most = max(most, pa.total_allocated_bytes() - before)
        del found
    assert seen == 32
    assert most < rows.nbytes / 2
