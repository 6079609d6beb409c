"""Random scripts: at every resolved timestamp, the rows that a changefeed read are those of the database."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_conformance.simulated import SimulatedDatabase, Snapshot, steps
from cdc_conformance.simulated.follower import Follower
from cdc_conformance.simulated.scan import point
from cdc_conformance.simulated.script import PAUSE, RESUME, Marker, Step, play
from cdc_conformance.simulated.session import Session
from cdc_conformance.simulated.table import Shape, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_core import Frontier, Op, PlacementRules, SchemaChangeRules, Span, StepLimit, Timestamp
from cdc_core.placement import STRATEGIES

TABLES = st.sampled_from(["t", "u"])
IDS = st.integers(0, 5)
NODES = st.integers(1, 3)
REPLICAS = st.sampled_from([(1,), (2, 3), (3, 1, 2)])
NAMES = st.sampled_from(["a", "b"])
COLUMNS = st.sampled_from(["note", "x", "y"])
VALUES = st.integers(0, 9)
MS = st.sampled_from([0.0, 50.0, 300.0])
ROWS = st.lists(st.tuples(TABLES, IDS), min_size=2, max_size=3)
Items = list[Step | Marker]


def written(name: str, table: str, id_: int, n: int) -> Items:
    return [steps.Write(name, table, id_, n=n)]


def begun(name: str, node: int | None, table: str, id_: int, n: int) -> Items:
    return [steps.Begin(name, node), *written(name, table, id_, n)]


def whole(name: str, node: int, rows: list[tuple[str, int]], ticks: int, end: Step) -> Items:
    """Return a transaction that stays open for a while."""
    writes = [steps.Write(name, table, id_, n=ticks) for table, id_ in rows]
    return [
        steps.Begin(name, node),
        writes[0],
        steps.Tick(ticks),
        PAUSE,
        *writes[1:],
        steps.Tick(ticks),
        PAUSE,
        end,
        PAUSE,
    ]


def endings(name: str) -> st.SearchStrategy[Step]:
    return st.sampled_from([steps.Commit(name), steps.Commit(name), steps.Commit(name, True), steps.Rollback(name)])


def alone(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Items]:
    return items.map(lambda item: [item])


RESTARTS: st.SearchStrategy[Items] = st.just([steps.Restart(node) for node in (1, 2, 3)])
PARTS: st.SearchStrategy[Items] = st.one_of(
    alone(
        st.builds(
            lambda table, id_, n, node: steps.Put(table, id_, n=n, node=node), TABLES, IDS, VALUES, st.none() | NODES
        )
    ),
    alone(st.builds(steps.Delete, TABLES, IDS, st.none() | NODES)),
    st.builds(begun, NAMES, st.none() | NODES, TABLES, IDS, VALUES),
    st.builds(whole, st.just("d"), NODES, ROWS, st.integers(0, 5), endings("d")),
    st.builds(whole, st.just("e"), NODES, ROWS, st.integers(0, 5), endings("e")),
    st.builds(written, NAMES, TABLES, IDS, VALUES),
    alone(st.builds(steps.Remove, NAMES, TABLES, IDS)),
    alone(st.builds(steps.Commit, NAMES, st.booleans())),
    alone(
        st.one_of(*(st.builds(end, NAMES) for end in (steps.Commit, steps.Abort, steps.Push)), st.builds(steps.Read))
    ),
    st.builds(lambda times: [steps.Tick(times), PAUSE], st.integers(1, 8)),
    st.builds(lambda times: [steps.Tick(times), PAUSE], st.integers(1, 8)),
    alone(st.one_of(st.builds(steps.Split, TABLES, IDS), st.builds(steps.Merge, TABLES, IDS))),
    alone(
        st.one_of(
            st.builds(steps.TransferLease, TABLES, IDS, NODES), st.builds(steps.MoveReplicas, TABLES, IDS, REPLICAS)
        )
    ),
    alone(st.one_of(st.builds(steps.SetLag, TABLES, IDS, MS, st.none() | NODES), st.builds(steps.SetSkew, NODES, MS))),
    st.one_of(alone(st.builds(steps.Crash, NODES)), RESTARTS, RESTARTS),
    alone(
        st.one_of(
            st.builds(steps.AddColumn, TABLES, COLUMNS),
            st.builds(steps.AddColumn, TABLES, COLUMNS, st.just("int"), VALUES),
            st.builds(steps.DropColumn, TABLES, COLUMNS),
            st.builds(steps.RenameColumn, TABLES, COLUMNS, COLUMNS),
            st.builds(steps.ChangeType, TABLES, COLUMNS, st.sampled_from(["float", "string"])),
        )
    ),
    alone(st.builds(steps.CollectGarbage)),
    alone(st.sampled_from([PAUSE, PAUSE, RESUME])),
)
SCRIPTS = st.lists(PARTS, min_size=30, max_size=50).map(lambda parts: [item for part in parts for item in part])
LIMITS = st.sampled_from([1, 3, 10**6])
RANDOM = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=False
)


@contextmanager
def database(seed: int) -> Iterator[SimulatedDatabase]:
    directory = Path(tempfile.mkdtemp(prefix="cdc-simulated-"))
    try:
        db = SimulatedDatabase.create(directory, seed=seed)
        for table in ("t", "u"):
            db.create_table(table)
            for id_ in range(3):
                db.put(table, id=id_, n=id_)
        yield db
    finally:
        shutil.rmtree(directory)


class Consumer:
    """Compares the rows that a follower reads with the state of the database."""

    def __init__(self, db: SimulatedDatabase, limit: StepLimit) -> None:
        self.db = db
        self.limit = limit
        self.feed = self._follow(None)
        self._compared = 0
        self._versions: dict[tuple[str, int], list[tuple[Timestamp, dict[str, Any] | None]]] = {}

    def step(self) -> None:
        for _ in range(4):
            self.feed.step()
            self.compare()
        self.feed.history.release(self.feed.token)

    def restart(self) -> None:
        self.feed, self._compared = self._follow(self.feed), 0

    def compare(self) -> None:
        """Take the new arrivals, and compare each span with the database as of the span's resolved timestamp."""
        for row in self.feed.changes[self._compared :]:
            versions = self._versions.setdefault((row.table, row.id), [])
            assert all(updated < row.updated for updated, _ in versions), f"{row} after {versions[-1]}"
            previous = versions[-1][1] if versions else None
            backfilled = row.op is Op.SCAN and any(shape.since == row.updated for shape in self._shapes(row.table))
            assert row.op is not Op.SCAN or backfilled or not versions
            assert (row.before is None) == (previous is None or backfilled)
            assert row.mvcc is not None
            assert row.mvcc <= row.updated
            versions.append((row.updated, row.after))
        self._compared = len(self.feed.changes)
        for span, reached in self.feed.frontier:
            if reached and reached >= self.db.cluster.gc_threshold:
                assert self._held(span, reached) == self._holds(span, reached)

    def _held(self, span: Span, at: Timestamp) -> dict[int, dict[str, Any]]:
        """Return the rows of the span as of *at* according to the arrivals, column by column."""
        rows = {}
        for (table, id_), versions in self._versions.items():
            if f"sim.public.{table}" == span.table and in_span(id_, span):
                row = next((after for updated, after in reversed(versions) if updated <= at), None)
                if row is not None:
                    rows[id_] = row
        return rows

    def _holds(self, span: Span, at: Timestamp) -> dict[int, dict[str, Any]]:
        cluster = self.db.cluster
        table = cluster.tables[span.table]
        shape = table.shape_at(at)
        return {
            id_: shape.row(version.cells)
            for id_, version in cluster.rows(table, at)
            if version.cells is not None and in_span(id_, span)
        }

    def _shapes(self, table: str) -> list[Shape]:
        return self.db.cluster.table(table).shapes[1:]

    def _follow(self, earlier: Follower | None) -> Follower:
        return Follower(
            self.db,
            "t",
            "u",
            limit=self.limit,
            resume_from=None if earlier is None else earlier.progress,
            options={"scan_chunk_rows": 2, "batch_rows": 2, "time_passes": False},
            diff=True,
            mvcc=True,
            schema_changes=SchemaChangeRules(events="column_changes"),
            placement=PlacementRules(strategy=STRATEGIES[self.limit.rows % len(STRATEGIES)]),
        )


def in_span(id_: int, span: Span) -> bool:
    return span.overlap(point(span.table, key_of(id_))) is not None


@RANDOM
@given(script=SCRIPTS, seed=st.integers(0, 9), rows=LIMITS)
def test_arrivals_match_the_database_as_of_every_resolved_timestamp(
    script: list[Step | Marker], seed: int, rows: int
) -> None:
    with database(seed) as db:
        consumer = Consumer(db, StepLimit(rows=rows, bytes=10**9))
        play(db, script, {PAUSE: consumer.step, RESUME: consumer.restart}, skip_refused=True)
        end(db)
        last = db.settle()
        for _ in range(500):
            if consumer.feed.frontier.high_water >= last:
                break
            consumer.step()
        assert consumer.feed.frontier.high_water >= last


def end(db: SimulatedDatabase) -> None:
    """Restart every node and end every transaction."""
    for number, node in db.cluster.nodes.items():
        if not node.alive:
            db.restart(number)
    for name, transaction in list(db.cluster.transactions.items()):
        if transaction.status == "open":
            db.execute("rollback", txn=name)


@RANDOM
@given(script=SCRIPTS, seed=st.integers(0, 9))
def test_nothing_is_written_at_or_below_a_resolved_timestamp(script: list[Step | Marker], seed: int) -> None:
    with database(seed) as db:
        resolved = {name: Frontier.from_json(db.cluster.resolved(name).to_json()) for name in db.cluster.tables}
        known = {name: set(versions(db, name)) for name in db.cluster.tables}

        def compare() -> None:
            for name, frontier in resolved.items():
                added = set(versions(db, name)) - known[name]
                for timestamp, id_ in added:
                    assert timestamp > reached(frontier, name, id_), f"row {id_} of {name} at {timestamp}: {frontier}"
                known[name] |= added
                now = db.cluster.resolved(name)
                for span, before in frontier:
                    assert now.of(span) >= before, f"{span} was resolved at {before}, now {now}"
                resolved[name] = Frontier.from_json(now.to_json())

        play(db, interspersed(script), {PAUSE: compare}, skip_refused=True)


def interspersed(script: Items) -> Items:
    """Return the steps of *script* with PAUSE after each, without garbage collections."""
    left = [item for item in script if not isinstance(item, Marker | steps.CollectGarbage)]
    return [item for step in left for item in (step, PAUSE)]


@RANDOM
@given(script=SCRIPTS, seed=st.integers(0, 9))
def test_snapshots_never_change(script: list[Step | Marker], seed: int) -> None:
    with database(seed) as db:
        read: list[tuple[Snapshot, dict[str, dict[int, dict[str, Any]]]]] = []

        def look() -> None:
            snapshot = db.as_of()
            rows = {table: snapshot.rows(table) for table in ("t", "u")}
            assert rows == {table: db.rows(table) for table in ("t", "u")}
            read.append((snapshot, rows))

        play(db, script, {PAUSE: look, RESUME: look}, skip_refused=True)
        for snapshot, rows in read:
            if snapshot.timestamp >= db.cluster.gc_threshold:
                assert {table: snapshot.rows(table) for table in ("t", "u")} == rows


def versions(db: SimulatedDatabase, table: str) -> Iterator[tuple[Timestamp, int]]:
    return db.cluster.tables[table].changes(Span(table), after=Timestamp(), upto=Timestamp(2**62))


def reached(frontier: Frontier, table: str, id_: int) -> Timestamp:
    return frontier.of(point(table, key_of(id_)))


@RANDOM
@given(script=SCRIPTS, seed=st.integers(0, 9))
def test_a_process_that_replays_the_events_has_the_same_state(script: list[Step | Marker], seed: int) -> None:
    with database(seed) as db:
        early = Session(db.directory)

        def look() -> None:
            assert early.cluster.events == db.cluster.events

        play(db, script, {PAUSE: look, RESUME: look}, skip_refused=True)
        assert dump(early) == dump(db) == dump(Session(db.directory))


def dump(session: Session) -> str:
    """Return the whole state of a session as text."""
    cluster = session.cluster
    state = {name: value for name, value in vars(cluster).items() if name != "tables"}
    tables = {name: vars(table) for name, table in cluster.tables.items()}
    return json.dumps([state, tables], default=repr, sort_keys=True)


def test_the_same_script_gives_the_same_timestamps_for_the_same_seed_only(tmp_path: Path) -> None:
    def timestamps(name: str, seed: int) -> list[Timestamp]:
        db = SimulatedDatabase.create(tmp_path / name, seed=seed)
        db.create_table("t")
        return [db.put("t", id=1, n=n) for n in range(5)]

    first = timestamps("a", 1)
    assert timestamps("b", 1) == first
    assert timestamps("c", 2) != first
