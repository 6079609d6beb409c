"""The workload's history matches its writes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from cdc_conformance.simulated.session import Journal
from cdc_conformance.simulated.writer import SimulatedWriter
from cdc_conformance.workload import Workload, same_row

from cdc_core import SourceWriterContext


def writer_in(directory: Path) -> SimulatedWriter:
    """Return a writer of a new database with the tables a and b."""
    writer = SimulatedWriter(SourceWriterContext(uri=f"simulated://{directory}", options=None))
    for table in ("a", "b"):
        writer.create_table(table)
    return writer


def events(writer: SimulatedWriter) -> list[dict[str, Any]]:
    """Return what was done to the database, in order."""
    return list(Journal(writer.database.directory).unread())


@pytest.fixture
def writer(tmp_path: Path) -> SimulatedWriter:
    return writer_in(tmp_path / "db")


def test_the_history_replays_to_the_contents_of_the_tables(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a", "b"), seed=1)
    for commits in (10, 100):
        workload.run(commits)
        held = {(table, id_): row for table in ("a", "b") for id_, row in writer.rows(table).items()}
        rows: dict[Any, Any] = {}
        for write in workload.history.writes():
            rows[write.key] = write.after
        assert {key: row for key, row in rows.items() if row is not None} == workload.rows
        assert held.keys() == workload.rows.keys()
        assert all(same_row(held[key], workload.rows[key]) for key in held)


def test_every_version_of_a_key_is_one_above_the_one_before(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a", "b"), seed=2)
    workload.run(200)
    for versions in workload.history.versions().values():
        numbers = [version["n"] for version in versions if version is not None]
        assert numbers == list(range(1, len(numbers) + 1))
        assert not any(one is two is None for one, two in itertools.pairwise(versions))


def test_each_write_has_the_row_before_its_transaction(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a",), seed=3)
    workload.run(100)
    rows: dict[Any, Any] = {}
    for commit in workload.history.commits:
        assert len({write.key for write in commit}) == len(commit)
        assert [write.before for write in commit] == [rows.get(write.key) for write in commit]
        rows.update({write.key: write.after for write in commit})


def test_all_kinds_of_transactions_occur(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a", "b"), seed=4)
    workload.run(300)
    writes = list(workload.history.writes())
    assert any(write.before is None for write in writes)
    assert any(write.after is None for write in writes)
    assert any(write.before and write.after for write in writes)
    assert any(len({write.table for write in commit}) == 2 for commit in workload.history.commits)
    written = {event["txn"] for event in events(writer) if event["op"] == "write"}
    assert any(event["op"] == "rollback" and event["txn"] in written for event in events(writer))
    again = [key for key, versions in workload.history.versions().items() if None in versions[:-1]]
    assert again, "no row was inserted again"


def test_the_same_seed_gives_the_same_events(tmp_path: Path) -> None:
    one, two, other = (writer_in(tmp_path / name) for name in ("one", "two", "other"))
    for writer, seed in ((one, 5), (two, 5), (other, 6)):
        Workload(writer, ("a", "b"), seed=seed).run(50)
    assert events(one) == events(two) != events(other)


def test_only_one_open_transaction_writes_a_row(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a",), seed=7, keys=2)
    held = workload.begin()
    held.put("a", 1, note="held")
    workload.run(20)
    assert ("a", 1) not in workload.rows
    with pytest.raises(AssertionError, match="row 1 of a belongs to another open transaction"):
        workload.begin().put("a", 1)
    held.commit()
    assert workload.rows["a", 1]["note"] == "held"
    assert [write.key for write in workload.history.commits[-1]] == [("a", 1)]


def test_open_transactions_can_be_committed_or_rolled_back(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a",), seed=8)
    while "2 open" not in repr(workload):
        workload.step()
    workload.settle()
    assert "0 open" in repr(workload)
    commits = len(workload.history)
    workload.begin().put("a", 9)
    workload.close()
    assert "0 open" in repr(workload)
    assert len(workload.history) == commits


def test_a_transaction_without_changes_is_not_in_the_history(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a",), seed=9)
    workload.delete("a", 1)
    workload.begin().commit()
    assert len(workload.history) == 0


def test_columns_can_be_added_and_dropped(writer: SimulatedWriter) -> None:
    workload = Workload(writer, ("a",), seed=10)
    workload.put("a", 1)
    workload.add_column("a", "extra")
    workload.put("a", 1, extra="x")
    workload.drop_column("a", "extra")
    workload.put("a", 1, note="last")
    first, second, third = workload.history.writes()
    assert same_row({**(first.after or {}), "extra": None}, first.after)
    assert second.after == {"id": 1, "n": 2, "note": None, "extra": "x"}
    assert third.before == {"id": 1, "n": 2, "note": None}
    assert third.after == {"id": 1, "n": 3, "note": "last"}
    assert workload.rows == {("a", 1): third.after}
