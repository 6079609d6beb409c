"""`cdc audit`: rows that were lost, added or changed at the destination are found, and nothing else."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_rangefeed_postgres.snapshot import SnapshotMaker
from cdc_testing.fixtures import fresh_database
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import Sql, clock

from cdc_core import ConfigError, Flushed, Op, RowBatch, Sink, SliceInfo, TableSchema, Timestamp
from cdc_core.auditing.audit import Audit, SourceRows
from cdc_core.auditing.comparison import Difference, Figures, Finding
from cdc_core.auditing.delivered import Delivered, DeliveredFiles
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.queries.selection import Selection


class Spoiling(Sink):
    """A sink that delivers what a function makes of the rows."""

    def __init__(self, sink: Sink, spoil: Callable[[RowBatch], RowBatch]) -> None:
        super().__init__(sink.context)
        self._sink = sink
        self._spoil = spoil

    def begin(self, slice_: SliceInfo) -> None:
        self._sink.begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        self._sink.emit(self._spoil(rows))

    def flush(self) -> Flushed:
        return self._sink.flush()

    def close(self) -> None:
        self._sink.close()


def without(keys: set[int], op: Op) -> Callable[[RowBatch], RowBatch]:
    """Return what loses the changes of kind *op* of rows with *keys*."""

    def spoil(rows: RowBatch) -> RowBatch:
        ids = rows.column("key").field("id").to_pylist()
        kept = [key not in keys or kind != op for key, kind in zip(ids, rows.column("op").to_pylist(), strict=True)]
        return replace(rows, batch=rows.batch.filter(pa.array(kept)))

    return spoil


class Delivering:
    """A changefeed into files that delivers everything while it is audited."""

    def __init__(self, database: str, directory: Path, engine: LocalEngine, feed: ResolvedChangefeed) -> None:
        self._database = database
        self._directory = directory
        self._engine = engine
        self._feed = feed

    def deliver(self) -> Timestamp:
        """Deliver all that is committed by now; return the mark that covers it."""
        self._engine.until(clock(self._database))
        return self._engine.high_water

    def audit(
        self, at: Timestamp | None = None, *, runs: bool = True, most_shown: int = 100
    ) -> tuple[list[Difference], Figures]:
        """Audit while the changefeed goes on, or not if it does not run."""
        marks = DeliveredFiles.marks

        def delivered(files: DeliveredFiles) -> Sequence[Timestamp]:
            if runs:
                self._engine.step()
            return marks(files)

        target = self._directory / "audit"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DeliveredFiles, "marks", delivered)
            audit = Audit(self._feed, target, at=at, wait_s=60.0 if runs else 0.0, most_shown=most_shown)
            try:
                return list(audit.differences()), audit.figures
            finally:
                shutil.rmtree(target, ignore_errors=True)


@contextmanager
def delivering(
    database: str,
    directory: Path,
    *tables: str,
    format_: str = "json",
    spoil: Callable[[RowBatch], RowBatch] | None = None,
    sections: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Iterator[Delivering]:
    name = directory.name.lower()
    feed = resolved_feed(database, f"file://{directory}/out", *tables, format_=format_, options=options, name=name)
    selections = tuple(Selection.parse(table, value) for table, value in sections.items())
    feed = replace(feed, selections=selections, options=replace(feed.options, mask_key="a key of twenty letters"))
    engine = LocalEngine(feed, directory, wrap_sink=lambda sink: sink if spoil is None else Spoiling(sink, spoil))
    engine.run()
    found = Delivering(database, directory, engine, feed)
    try:
        found.deliver()
        yield found
    finally:
        engine.close()


def found_in(differences: list[Difference]) -> dict[tuple[Any, ...], str]:
    return {tuple(each.key.values()): str(each.finding) for each in differences}


@pytest.mark.parametrize(
    "format_", ["json", *(pytest.param(name, marks=pytest.mark.slow) for name in ("avro", "parquet"))]
)
def test_rows_of_all_types_are_the_same(database: str, sql: Sql, tmp_path: Path, format_: str) -> None:
    sql.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric(10,2), m numeric, a int[], x text[], j jsonb, k json, f float8,"
        " g float4, b bytea, s text, d date, ts timestamptz, tz timestamp, tm time, u uuid, i interval, o bool)"
    )
    sql.execute(
        """INSERT INTO t SELECT g, g / 3.0, g / 7.0, ARRAY[g, NULL], ARRAY['a"b', 'é'],
           jsonb_build_object('a', g, 'b', NULL), '{"a":   1, "z": [1,2 ]}', 'NaN', 0.1, decode('00ff', 'hex'),
           'é"' || chr(10) || g, '2020-02-29', now(), now()::timestamp, '12:00:01.5', gen_random_uuid(),
           '1 day 2 months', g % 2 = 0
           FROM generate_series(1, 500) g"""
    )
    sql.execute("INSERT INTO t (id) VALUES (0)")
    with delivering(database, tmp_path / "feed", "t", format_=format_) as feed:
        sql.execute("UPDATE t SET n = n + 1 WHERE id <= 10")
        sql.execute("DELETE FROM t WHERE id = 20")
        differences, figures = feed.audit()
    assert (differences, figures.rows) == ([], 500)


def lost(rows: RowBatch) -> RowBatch:
    """Lose a change of each kind of table `planted`, and one of table `altered`."""
    if rows.schema.name.table == "planted":
        return without({9}, Op.UPDATE)(without({3001}, Op.INSERT)(without({7}, Op.DELETE)(rows)))
    return without({2}, Op.UPDATE)(rows) if rows.schema.name.table == "altered" else rows


Audited = tuple[list[Difference], Figures]


@pytest.fixture(scope="module")
def several(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> tuple[Audited, Audited]:
    """Two audits of a changefeed of three tables, `big` has values that updates leave out."""
    directory = tmp_path_factory.mktemp("several")
    with fresh_database(postgres_server) as database, psycopg.connect(database, autocommit=True) as sql:
        sql.execute("CREATE TABLE planted (id int PRIMARY KEY, v text, n int)")
        sql.execute("INSERT INTO planted SELECT g, 'a', g FROM generate_series(1, 2000) g")
        sql.execute("CREATE TABLE big (id int PRIMARY KEY, big text, n int)")
        sql.execute("ALTER TABLE big ALTER big SET STORAGE EXTERNAL")
        sql.execute("INSERT INTO big SELECT g, repeat(g::text, 5000), 0 FROM generate_series(1, 20) g")
        sql.execute("CREATE TABLE altered (id int PRIMARY KEY, v text, w int)")
        sql.execute("INSERT INTO altered VALUES (1, 'a', 1), (2, 'a', 2), (3, 'a', 3)")
        with delivering(database, directory / "feed", "planted", "big", "altered", spoil=lost) as feed:
            sql.execute("DELETE FROM planted WHERE id = 7")
            sql.execute("UPDATE planted SET n = -n WHERE id IN (9, 10)")
            sql.execute("INSERT INTO planted VALUES (3001, 'lost', 1)")
            sql.execute("UPDATE big SET n = 1 WHERE id <= 10")
            sql.execute("UPDATE big SET id = 100 WHERE id = 5")  # all that is known of row 100 is its key and n
            sql.execute("ALTER TABLE altered ADD COLUMN x int")
            sql.execute("UPDATE altered SET x = 5 WHERE id <= 2")
            first = feed.audit()
            sql.execute("INSERT INTO big VALUES (3000, repeat('a', 9000), 1)")
            feed.deliver()
            sql.execute("UPDATE big SET n = 2 WHERE id = 3000")
            sql.execute("ALTER TABLE altered DROP COLUMN x, ALTER w TYPE bigint")
            return first, feed.audit()


def differing(audited: Audited, table: str) -> list[Difference]:
    return [each for each in audited[0] if each.table.table == table]


def test_planted_differences_are_found_with_key_and_columns(several: tuple[Audited, Audited]) -> None:
    for audited in several:
        differences = differing(audited, "planted")
        assert found_in(differences) == {(3001,): "missing", (7,): "extra", (9,): "different"}
        different = next(each for each in differences if each.finding is Finding.DIFFERENT)
        assert (different.source, different.destination) == ({"n": -9}, {"n": 9})
    (_, first), (_, second) = several
    assert (first.tables, first.rows, first.missing, first.extra, first.different) == (3, 2023, 1, 1, 2)
    assert (second.rows, second.missing, second.extra, second.different) == (2024, 1, 1, 1)


def test_columns_that_an_update_left_out_have_the_values_from_before(several: tuple[Audited, Audited]) -> None:
    assert [differing(audited, "big") for audited in several] == [[], []]


def test_a_table_that_got_and_lost_columns_is_compared_by_its_present_ones(several: tuple[Audited, Audited]) -> None:
    first, second = (differing(audited, "altered") for audited in several)
    assert [(each.key, each.source, each.destination) for each in first] == [({"id": 2}, {"x": 5}, {"x": None})]
    assert second == []


def test_rows_that_change_during_the_audit_are_the_same_as_one_of_their_versions(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moves to later blocks before the snapshot of the scan is read from the log."""
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 300) g")
    request, marks = SnapshotMaker.request, DeliveredFiles.marks
    moved: list[bool] = []
    read: list[bool] = []

    def move_and_request(maker: SnapshotMaker) -> None:
        if not moved:
            moved.append(True)
            sql.execute("UPDATE t SET v = repeat('y', 500) WHERE id % 2 = 0")
            sql.execute("DELETE FROM t WHERE id = 3")
        request(maker)

    def change_and_list(files: DeliveredFiles) -> Sequence[Timestamp]:
        if len(read) == 1:  # the source was read
            sql.execute("UPDATE t SET v = 'z' WHERE id <= 50")
            sql.execute("DELETE FROM t WHERE id = 5")
            sql.execute("INSERT INTO t VALUES (1000, 'new')")
        read.append(True)
        return marks(files)

    with delivering(database, tmp_path / "feed", "t") as feed:
        monkeypatch.setattr(SnapshotMaker, "request", move_and_request)
        monkeypatch.setattr(DeliveredFiles, "marks", change_and_list)
        differences, figures = feed.audit()
    assert (differences, figures.rows) == ([], 299)
    assert moved
    assert figures.changed >= 50, "those that changed after the source was read"


def test_a_mark_in_the_past_is_compared_with_what_came_since(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    with delivering(database, tmp_path / "feed", "t", spoil=without({3}, Op.UPDATE)) as feed:
        mark = feed.deliver()
        sql.execute("UPDATE t SET v = 'b' WHERE id IN (2, 3)")
        feed.deliver()
        differences, figures = feed.audit(mark)
        assert figures.cut == mark
        assert found_in(differences) == {(3,): "different"}
        assert figures.changed == 1
        with pytest.raises(ConfigError, match=r"there is no resolved mark .* at file://.* Use --at \d+\.\d+"):
            feed.audit(Timestamp(mark.wall - 1))


def test_a_changefeed_that_does_not_run_is_the_same_or_nothing_is_said(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'a')")
    with delivering(database, tmp_path / "feed", "t") as feed:
        assert feed.audit(runs=False)[0] == []
        sql.execute("INSERT INTO t VALUES (2, 'b')")
        with pytest.raises(ConfigError, match=r"1 row of 2 differ.* so an undelivered change looks like"):
            feed.audit(runs=False)


def test_values_that_the_source_converted_are_compared_only_if_they_were_delivered_again(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, f real, n numeric(8,1), v text)")
    sql.execute("INSERT INTO t SELECT g, 0.1, 0.5, 'a' FROM generate_series(1, 3) g")
    options = {"schema_change_policy": "nobackfill"}
    with delivering(database, tmp_path / "feed", "t", spoil=without({2}, Op.UPDATE), **options) as feed:
        sql.execute("ALTER TABLE t ALTER f TYPE float8, ALTER n TYPE numeric(8,3)")
        sql.execute("UPDATE t SET v = 'b' WHERE id >= 2")
        differences = feed.audit()[0]
    assert [(each.key, each.source) for each in differences] == [({"id": 2}, {"v": "b"})]


def test_deleted_rows_of_envelope_bare_are_gone(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'a'), (4, 'a')")
    with delivering(database, tmp_path / "feed", "t", spoil=without({4}, Op.DELETE), envelope="bare") as feed:
        sql.execute("DELETE FROM t WHERE id IN (3, 4)")
        assert found_in(feed.audit()[0]) == {(4,): "extra"}


def test_columns_and_masks_of_a_section_are_applied_to_the_source(database: str, sql: Sql, tmp_path: Path) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, card text, email text, n int)")
    sql.execute("INSERT INTO t SELECT g, 'secret', g || '@example.com', g FROM generate_series(1, 10) g")
    section = {"columns": {"exclude": ["card"]}, "mask": {"email": "hash"}}
    with delivering(database, tmp_path / "feed", "t", sections={"t": section}) as feed:
        differences, figures = feed.audit()
    # Nothing applies the section to what this engine delivers: all rows have the address as it is.
    assert figures.different == 10
    for each in differences:
        assert each.destination == {"email": f"{each.key['id']}@example.com"}
        assert re.fullmatch("[0-9a-f]{64}", each.source["email"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"resolved": False}, "it delivers no resolved marks; set option 'resolved'"),
        ({"updated": False}, "its messages have no timestamps; set option 'updated'"),
        ({"initial_scan": "no"}, "without an initial scan, the destination lacks rows"),
        (
            {"initial_scan": "only", "resolved": False, "updated": False},
            "with initial_scan = 'only', it delivers no resolved mark",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    feed = resolved_feed("postgresql://u@127.0.0.1:1/d", f"file://{tmp_path}", "t", options=options)
    with pytest.raises(ConfigError, match=f"changefeed 't' cannot be audited: {reason}"):
        Audit(feed, tmp_path, at=None, wait_s=0.0, most_shown=1)


def test_sinks_without_a_reader_and_formats_of_scans_are_refused(tmp_path: Path) -> None:
    source = "postgresql://u@127.0.0.1:1/d"
    for feed, reason in (
        (resolved_feed(source, "null://", "t"), "sink 'null' has no reader"),
        (
            resolved_feed(source, "kafka://h:1", "t", options={"envelope": "key_only", "updated": False}),
            "in envelope 'key_only' have no values to compare",
        ),
        (
            resolved_feed(
                source,
                f"file://{tmp_path}",
                "t",
                format_="csv",
                options={"initial_scan": "only", "resolved": False, "updated": False},
            ),
            "format 'csv' has neither timestamps nor marks",
        ),
    ):
        with pytest.raises(ConfigError, match=reason):
            Audit(feed, tmp_path, at=None, wait_s=0.0, most_shown=1)


class Clock:
    """The time, which passes only while one sleeps or reads."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


class Slow(Delivered):
    """Marks of which each read takes *read_s* seconds and has what was there when it began: one more each second."""

    def __init__(self, clock: Clock, read_s: float) -> None:
        self._clock = clock
        self._read_s = read_s
        self.reads = 0

    def marks(self) -> Sequence[Timestamp]:
        begun = self._clock.now
        self._clock.now += self._read_s
        self.reads += 1
        return [Timestamp(second * 1_000_000_000) for second in range(1, 2 + int(begun))]

    def rows(self, schemas: Sequence[TableSchema], upto: Timestamp) -> Iterator[RowBatch]:
        yield from ()

    def close(self) -> None:
        pass


def test_a_mark_that_came_in_time_counts_even_if_one_read_takes_longer_than_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = resolved_feed("postgresql://u@127.0.0.1:1/d", f"file://{tmp_path}", "t")
    moment = Timestamp(1_000_000_000)
    source = SourceRows(layouts={}, rows={}, resolved=moment, latest=moment)
    audit = Audit(feed, tmp_path, at=None, wait_s=60.0, most_shown=1)
    for read_s, reads, marks in ((90.0, 2, 2), (0.1, 4, 2), (40.0, 2, 2)):
        clock = Clock()
        monkeypatch.setattr("cdc_core.auditing.audit.time", clock)
        slow = Slow(clock, read_s)
        found, covered = audit._covering(slow, source)
        assert (len(found), covered, slow.reads) == (marks, True, reads)
    audit = Audit(feed, tmp_path, at=None, wait_s=0.0, most_shown=1)
    slow = Slow(Clock(), 90.0)
    assert audit._covering(slow, source) == ([moment], False)
    assert slow.reads == 1, "nobody waits"
