from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.simulated import (
    SimulatedDatabase,
    StatementError,
    TransactionAbortedError,
    UnavailableError,
    WriteConflictError,
)
from cdc_conformance.simulated.table import key_of

from cdc_core import Span, Timestamp


def leaseholder(db: SimulatedDatabase, id_: int) -> int:
    return db.cluster.range_of("sim.public.t", key_of(id_)).leaseholder


def resolved(db: SimulatedDatabase, id_: int) -> Timestamp:
    key = key_of(id_)
    return db.cluster.resolved("sim.public.t").of(Span("sim.public.t", key, key + b"\x00"))


def test_a_transaction_shows_all_of_its_writes_at_one_timestamp_or_none(db: SimulatedDatabase) -> None:
    db.put("t", id=1, n=1, note="kept")
    with db.transaction() as txn:
        txn.put("t", id=1, n=2)
        txn.put("t", id=2, n=2)
        assert db.rows("t") == {1: {"id": 1, "n": 1, "note": "kept"}}
    committed = db.now
    assert db.as_of(committed).rows("t") == {1: {"id": 1, "n": 2, "note": "kept"}, 2: {"id": 2, "n": 2, "note": None}}
    assert db.as_of(committed.prev()).rows("t") == {1: {"id": 1, "n": 1, "note": "kept"}}


def test_a_transaction_whose_block_raises_is_rolled_back(db: SimulatedDatabase) -> None:
    def fail() -> None:
        with db.transaction() as txn:
            txn.put("t", id=1, n=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert db.rows("t") == {}
    assert not db.cluster.transactions


def test_a_node_with_a_slow_clock_writes_nothing_at_or_below_a_read(db: SimulatedDatabase) -> None:
    txn = db.begin(node=1)
    txn.put("t", id=1, n=1)
    read = db.as_of(db.put("t", id=2, n=2, node=3))
    db.set_skew(1, -10_000)
    assert db.put("t", id=3, n=3, node=1) > read.timestamp
    assert txn.commit() > read.timestamp
    assert set(read.rows("t")) == {2}


def test_a_row_that_an_open_transaction_wrote_cannot_be_written_by_another(db: SimulatedDatabase) -> None:
    txn = db.begin("first")
    txn.put("t", id=1, n=1)
    with pytest.raises(WriteConflictError, match="'first', which is open"):
        db.put("t", id=1, n=2)
    txn.abort()
    db.put("t", id=1, n=2)
    with pytest.raises(TransactionAbortedError):
        txn.commit()


def test_a_pushed_transaction_commits_later_than_the_reader(db: SimulatedDatabase) -> None:
    txn = db.begin()
    txn.put("t", id=1, n=1)
    read = db.as_of(db.now)
    pushed = txn.push()
    assert txn.commit() >= pushed > read.timestamp
    assert read.rows("t") == {}


def test_open_transactions_hold_back_the_resolved_timestamp_and_commit_above_it(db: SimulatedDatabase) -> None:
    txn = db.begin(node=1)
    txn.put("t", id=1, n=1)
    db.tick(times=20)
    held = resolved(db, 1)
    committed = txn.commit()
    assert committed > held
    db.tick()
    assert resolved(db, 1) > committed
    db.set_skew(1, -5_000)
    assert db.put("t", id=2, n=1, node=1) > resolved(db, 2)


def test_unresolved_intents_hold_back_their_range_although_readers_see_the_rows(db: SimulatedDatabase) -> None:
    db.split("t", at=10)
    txn = db.begin()
    txn.put("t", id=1, n=1)
    txn.put("t", id=10, n=1)
    committed = txn.commit(later=True)
    assert set(db.rows("t")) == set(db.as_of(committed).rows("t")) == {1, 10}
    assert list(db.cluster.tables["sim.public.t"].changes(Span("sim.public.t"), after=Timestamp(), upto=db.now)) == [
        (committed, 1)
    ]
    assert resolved(db, 10) < committed
    db.settle()
    assert set(db.rows("t")) == {1, 10}
    assert not db.cluster.transactions


def test_the_lease_of_a_dead_node_moves_after_a_while(db: SimulatedDatabase) -> None:
    holder = leaseholder(db, 1)
    db.crash(holder)
    before = resolved(db, 1)
    db.tick()
    assert leaseholder(db, 1) == holder
    assert resolved(db, 1) == before, "no node closes timestamps meanwhile"
    db.tick(times=10)
    assert leaseholder(db, 1) != holder
    assert resolved(db, 1) > before


def test_a_writer_waits_until_another_node_has_the_lease(db: SimulatedDatabase) -> None:
    holder = leaseholder(db, 1)
    db.crash(holder)
    before = db.cluster.now
    db.put("t", id=1, n=1)
    assert leaseholder(db, 1) != holder
    assert db.cluster.now - before > 400_000_000


def test_a_range_without_a_quorum_refuses_writes(db: SimulatedDatabase) -> None:
    db.crash(1)
    db.crash(2)
    with pytest.raises(UnavailableError, match="lost most of its replicas"):
        db.put("t", id=1, n=1)
    db.restart(1)
    db.put("t", id=1, n=1)


@pytest.mark.parametrize("comes_back", [True, False])
def test_open_transactions_of_a_dead_coordinator_are_cleaned_up(db: SimulatedDatabase, comes_back: bool) -> None:
    txn = db.begin(node=3)
    txn.put("t", id=1, n=1)
    db.crash(3)
    with pytest.raises(TransactionAbortedError, match="node 3, is down"):
        txn.commit()
    if comes_back:
        db.restart(3)
    else:
        db.tick(times=10)
    assert not db.cluster.transactions
    db.put("t", id=1, n=2)
    assert db.rows("t")[1]["n"] == 2


def test_a_commit_survives_the_death_of_its_coordinator(db: SimulatedDatabase) -> None:
    db.split("t", at=10)
    txn = db.begin(node=3)
    txn.put("t", id=1, n=1)
    txn.put("t", id=10, n=1)
    txn.commit(later=True)
    db.crash(3)
    assert set(db.rows("t")) == {1, 10}
    db.tick(times=10)
    assert set(db.rows("t")) == {1, 10}
    assert not db.cluster.transactions


def test_history_can_be_read_as_of_any_timestamp_until_it_is_collected(db: SimulatedDatabase) -> None:
    committed = [db.put("t", id=1, n=n) for n in range(4)]
    deleted = db.delete("t", 1)
    assert [db.as_of(at).rows("t")[1]["n"] for at in committed] == [0, 1, 2, 3]
    assert db.as_of(deleted).rows("t") == {}
    db.protect("changefeed", committed[2])
    db.settle()
    snapshot = db.as_of(committed[1])
    assert db.collect_garbage() == committed[2]
    assert db.as_of(committed[2]).rows("t")[1]["n"] == 2
    for read in (lambda: db.as_of(committed[1]), lambda: snapshot.rows("t")):
        with pytest.raises(StatementError, match="history begins at"):
            read()
    with pytest.raises(StatementError, match="is gone"):
        db.protect("late", committed[0])
    assert db.collect_garbage(force=True) == deleted
    assert db.rows("t") == {}


def test_the_future_cannot_be_read(db: SimulatedDatabase) -> None:
    with pytest.raises(StatementError, match="later than all clocks"):
        db.as_of(Timestamp(db.now.wall + 10**12))


def test_a_column_with_the_name_of_a_dropped_one_starts_empty(db: SimulatedDatabase) -> None:
    before = db.put("t", id=1, n=1, note="old")
    db.drop_column("t", "note")
    assert db.rows("t") == {1: {"id": 1, "n": 1}}
    db.add_column("t", "note")
    assert db.rows("t") == {1: {"id": 1, "n": 1, "note": None}}
    assert db.as_of(before).rows("t") == {1: {"id": 1, "n": 1, "note": "old"}}


def test_a_default_is_in_rows_that_exist_and_in_later_ones_that_say_nothing_else(db: SimulatedDatabase) -> None:
    before = db.put("t", id=1, n=1)
    since = db.add_column("t", "size", "int", default=7)
    db.put("t", id=2, n=1)
    db.put("t", id=3, n=1, size=None)
    assert {id_: row["size"] for id_, row in db.rows("t").items()} == {1: 7, 2: 7, 3: None}
    assert "size" not in db.as_of(before).rows("t")[1]
    assert db.as_of(since).rows("t") == {1: {"id": 1, "n": 1, "note": None, "size": 7}}


def test_a_renamed_column_keeps_its_values(db: SimulatedDatabase) -> None:
    db.put("t", id=1, n=1, note="kept")
    db.rename_column("t", "note", "text")
    assert db.rows("t") == {1: {"id": 1, "n": 1, "text": "kept"}}
    db.put("t", id=1, text="new")
    db.add_column("t", "note", default="another")
    assert db.rows("t") == {1: {"id": 1, "n": 1, "text": "new", "note": "another"}}


def test_another_type_computes_the_values_of_rows_that_exist_anew(db: SimulatedDatabase) -> None:
    db.add_column("t", "size", "int", default=7)
    db.put("t", id=1, n=1)
    db.put("t", id=2, n=1, size=None)
    db.change_type("t", "size", "float")
    db.change_type("t", "size", "string")
    db.put("t", id=3, n=1, size="big")
    assert {id_: row["size"] for id_, row in db.rows("t").items()} == {1: "7.0", 2: None, 3: "big"}


def test_a_transaction_that_is_open_during_a_change_keeps_what_it_wrote(db: SimulatedDatabase) -> None:
    txn = db.begin()
    txn.put("t", id=1, n=1, note="early")
    since = db.rename_column("t", "note", "text")
    db.add_column("t", "size", "int", default=7)
    txn.put("t", id=2, n=1, text="late")
    assert txn.commit() > since
    assert db.rows("t")[1] == {"id": 1, "n": 1, "text": "early", "size": 7}
    assert db.rows("t")[2] == {"id": 2, "n": 1, "text": "late", "size": 7}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda db: db.add_column("t", "note"), "already has a column 'note'"),
        (lambda db: db.add_column("t", "x", "int", default="7"), "cannot hold '7'"),
        (lambda db: db.add_column("t", "x", "date"), "unknown type 'date'"),
        (lambda db: db.drop_column("t", "id"), "no column 'id' that can be dropped"),
        (lambda db: db.rename_column("t", "x", "y"), "no column 'x' that can be renamed"),
        (lambda db: db.rename_column("t", "note", "n"), "already has a column 'n'"),
        (lambda db: db.change_type("t", "note", "int"), "of type 'string' cannot become 'int'"),
        (lambda db: db.change_type("t", "n", "string"), "no column 'n' that can be changed"),
    ],
)
def test_an_impossible_change_of_a_table_is_refused(
    db: SimulatedDatabase, change: Callable[[SimulatedDatabase], None], message: str
) -> None:
    shape = db.cluster.table("t").newest_shape
    with pytest.raises(StatementError, match=message):
        change(db)
    assert db.cluster.table("t").newest_shape == shape


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1}, "'n' of row 1 must not be null"),
        ({"id": 1, "n": 1, "m": 2}, "has no column 'm'; it has id, n, note"),
        ({"id": 1, "n": "1"}, "column 'n' cannot hold '1'"),
        ({"id": 1, "n": True}, "column 'n' cannot hold True"),
        ({"id": 1, "n": 2**63}, "column 'n' cannot hold"),
    ],
)
def test_an_invalid_row_is_refused(db: SimulatedDatabase, row: dict[str, int], message: str) -> None:
    with pytest.raises(StatementError, match=message):
        db.put("t", **row)
    assert db.rows("t") == {}


def test_tables_may_have_other_columns(db: SimulatedDatabase) -> None:
    db.create_table("s.u", [("id", "int"), ("x", "float"), ("ok", "bool")])
    db.put("s.u", id=-(2**63), x=1.5, ok=True)
    assert db.rows("s.u") == {-(2**63): {"id": -(2**63), "x": 1.5, "ok": True}}
    with pytest.raises(StatementError, match=r"no table public\.u"):
        db.rows("u")


def test_settle_names_the_transaction_that_holds_it_back(db: SimulatedDatabase) -> None:
    txn = db.begin("slow")
    txn.put("t", id=1, n=1)
    db.put("t", id=2, n=1)
    with pytest.raises(StatementError, match="held back by slow"):
        db.settle()


def test_an_unfinished_line_is_ignored(db: SimulatedDatabase) -> None:
    db.put("t", id=1, n=1)
    with (db.directory / "events.jsonl").open("a") as file:
        file.write('{"op": "put", "table": "t", "id": 2, "s')
    other = SimulatedDatabase(db.directory)
    assert set(other.rows("t")) == {1}
    other.put("t", id=3, n=3)
    assert set(db.rows("t")) == set(SimulatedDatabase(db.directory).rows("t")) == {1, 3}


WRITER = """
import sys
from cdc_conformance.simulated import SimulatedDatabase
db = SimulatedDatabase(sys.argv[1])
for id_ in range(int(sys.argv[2]), int(sys.argv[2]) + 20):
    db.put("t", id=id_, n=id_)
"""


def test_several_processes_may_write_at_the_same_time(db: SimulatedDatabase) -> None:
    commands = [[sys.executable, "-c", WRITER, str(db.directory), str(first)] for first in (0, 100, 200)]
    writers = [subprocess.Popen(command) for command in commands]
    assert [writer.wait(300) for writer in writers] == [0, 0, 0]
    assert set(db.rows("t")) == {first + id_ for first in (0, 100, 200) for id_ in range(20)}


def test_opening_a_missing_database_creates_nothing(tmp_path: Path) -> None:
    db = SimulatedDatabase(tmp_path / "nothing")
    with pytest.raises(StatementError, match="no simulated database in"):
        db.put("t", id=1, n=1)
    with pytest.raises(StatementError, match="no simulated database in"):
        db.rows("t")
    assert not (tmp_path / "nothing").exists()
