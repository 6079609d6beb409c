"""Tables that are altered in every way while they are written: each mark of a changefeed must show one moment of them.

`python -m cdc_testing.schema_load SEED STATEMENTS` plays one seed with so many statements. Exit status 1 after a fault.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_testing.altered_tables import KEYS, AlteredTable, Statement, TypeNames, create, statements_of
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.feeding import Feed, feed_of
from cdc_testing.postgres import Sql, another_tablespace, writing
from cdc_testing.recorded_tables import Recorder, canonical

from cdc_core import RetryableRangefeedError, RowBatch, SchemaChangeRules, SpanMark

_TIMEOUT_S = 150.0
_MAX_FAULTS = 5


@dataclass(slots=True)
class Report:
    """What happened. `faults` are the differences between the changefeed's rows and the tables at its marks."""

    seed: int
    altered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    writes: int = 0
    compared: int = 0
    rows: int = 0
    restarts: int = 0
    repeats: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.altered.total()} statements of {len(self.altered)} kinds "
            f"({self.refused.total()} refused), {self.writes} transactions, {self.rows} changes, "
            f"{self.compared} marks compared, {self.restarts} restarts, {self.repeats} slices read again, "
            f"{self.retries.total()} retries, {self.faults or 'no faults'}"
        )


class SchemaLoad:
    """Plays one seed against the database *uri*. *events*: see `SchemaChangeRules`."""

    def __init__(self, uri: str, sql: Sql, *, seed: int, events: str | None = None) -> None:
        self._uri = uri
        self._sql = sql
        self._chance = random.Random(seed)
        self._exact = (events or ("column_changes", "default")[seed % 2]) == "column_changes"
        self.report = Report(seed)
        self._tables = [create(sql, partitioned=False), create(sql, partitioned=True)]
        self._types = TypeNames()
        self._recorder = Recorder(sql, slot=f"recorder_{seed}")
        for table in self._tables:
            self._recorder.watch(table.tag)
        self._unknown: dict[tuple[str, tuple[Any, ...]], tuple[str, ...]] = {}
        """The columns that the newest version of a row leaves out."""
        self._looked_up: set[tuple[str, tuple[Any, ...]]] = set()
        """The rows whose large value may be newer than a mark after a scan, as the guarantees say."""
        self._reached = 0
        self._moved = threading.Condition()
        self._over = False

    def play(self, statements: int) -> Report:
        """Alter the tables so many times, and compare them at every mark."""
        rules = SchemaChangeRules(events="column_changes" if self._exact else "default")
        size = self._chance.choice([500_000, 2_000_000, 64 << 20])
        options = {"scan_round": self._chance.choice([0.3, 5.0]), "lock_timeout": 1.0}
        with feed_of(self._uri, "t", "p", options=options, bytes_=size, schema_changes=rules) as feed:
            feed.start()
            with writing(self._uri, self._write, writers=3):
                failed: list[BaseException] = []
                thread = threading.Thread(target=self._alter_until, args=(statements, failed))
                thread.start()
                try:
                    while thread.is_alive() and len(self.report.faults) < _MAX_FAULTS:
                        self._step(feed)
                finally:
                    with self._moved:
                        self._over = True
                        self._moved.notify_all()
                    thread.join()
            if failed:
                raise failed[0]
            until = feed.now()
            deadline = time.monotonic() + _TIMEOUT_S
            while not self.report.faults and min(feed.resolved.values()) < until:
                assert time.monotonic() < deadline, "the changefeed does not reach the end"
                self._step(feed)
        return self.report

    # the changefeed

    def _step(self, feed: Feed) -> None:
        lot = self._chance.random()
        before = dict(feed.resolved)
        try:
            if lot < 0.03:
                feed.restart()
                self.report.restarts += 1
            elif lot < 0.15:
                self._read_twice(feed)
            scanned = _scanned(feed)
            changes = feed.step()
            scanned |= _scanned(feed)
        except RetryableRangefeedError as error:
            self.report.retries[str(error)[:60]] += 1
            feed.restart()
            return
        for change in changes or ():
            entry = change.table, change.key
            self._unknown[entry] = change.unavailable
            if change.table in scanned and not change.scanned:
                self._looked_up.add(entry)
            elif not change.unavailable:
                self._looked_up.discard(entry)
        self.report.rows += len(changes or ())
        if changes is not None and feed.resolved != before:
            self._compare(feed, parse_lsn(feed.token["lsn"]))

    def _read_twice(self, feed: Feed) -> None:
        """Read the slices of a step again, also with a planner that knows nothing but the plan."""
        start, after = feed.token, feed.latest
        planned = feed.plan()
        if planned is None:
            return
        end, slices = planned
        if start["scan"] is not None or end["scan"] is not None:
            return  # large values are looked up then
        first = [list(map(_shown, feed.reader.read(slice_))) for slice_ in slices]
        if self._chance.random() < 0.5:
            feed.restart()
            again = feed.planner.repeat(start, end, after=after) if feed.token == start else None
            if again is None or repr(again) != repr(slices):
                return  # the engine plans the step anew
            slices = again
        if first != [list(map(_shown, feed.reader.read(slice_))) for slice_ in slices]:
            self.report.faults.append(f"slices read again have other rows: {start['lsn']} to {end['lsn']}")
        self.report.repeats += len(slices)

    def _compare(self, feed: Feed, lsn: int) -> None:
        recorder = self._recorder
        recorder.move_to(lsn)
        for table in self._tables:
            expected, rows = recorder.tables[table.tag], feed.rows(f"public.{table.tag}")
            want = {key: {name: row.get(name) for name in expected.columns} for key, row in expected.rows.items()}
            for key in rows:
                want.setdefault(tuple(map(canonical, key)), {})
            found = {tuple(map(canonical, key)): (key, row) for key, row in rows.items()}
            for key, row in want.items():
                own, got = found.get(key, (key, {}))
                if expected.leaving is not None and expected.is_leaving(row or got):
                    continue
                entry = f"public.{table.tag}", own
                unknown, ignored = self._unknown.get(entry, ()), ("body",) if entry in self._looked_up else ()
                if difference := self._difference(row, got, unknown=unknown, ignored=ignored):
                    self.report.faults.append(f"table {table.tag}, key {key}, mark {lsn:X}: {difference}")
                    break
        self.report.compared += 1
        with self._moved:
            self._reached = lsn
            self._moved.notify_all()

    def _difference(
        self, row: dict[str, Any], got: dict[str, Any], *, unknown: Sequence[str], ignored: Sequence[str]
    ) -> str | None:
        if not row or not got:
            return f"a row too many: {got}" if got else f"missing: {row}"
        for name in row.keys() | got.keys():
            left_out = name in unknown or (not self._exact and row.get(name) is None)
            if name in ignored or (left_out and name in row and name not in got):
                continue
            want, have = canonical(row.get(name, "no such column")), canonical(got.get(name, "no such column"))
            if name == "m" and want is not None:
                want = self._recorder.labels.get(first := want.partition("_")[0], first)
            if want != have:
                return f"column {name} is {have!r:.60} and not {want!r:.60}"
        return None

    # the database

    def _write(self, connection: Sql, number: int) -> None:
        """Write one transaction. Statements that no longer fit an altered table end it."""
        chance = random.Random(self.report.seed * 1_000_003 + number)
        try:
            with connection.transaction():
                for _ in range(chance.choice([1, 1, 1, 1, 3, 10, 40])):
                    table = chance.choice(self._tables)
                    if chance.random() < 0.1:
                        with connection.transaction() as savepoint:
                            connection.execute(write(table, self._types, chance).encode())
                            if chance.random() < 0.7:
                                raise psycopg.Rollback(savepoint)
                    else:
                        connection.execute(write(table, self._types, chance).encode())
            self.report.writes += 1
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise

    def _alter_until(self, statements: int, failed: list[BaseException]) -> None:
        try:
            with psycopg.connect(self._uri, autocommit=True) as sql:
                sql.execute("SET lock_timeout = '3s'")
                for number in range(10 * statements):
                    if self.report.altered.total() >= statements or self._over:
                        return
                    for step in range(self._chance.choice([1, 1, 2, 4])):
                        self._alter(sql, 10 * number + step)
                    if self._chance.random() < 0.8:
                        self._await_mark(sql)
        except BaseException as error:
            failed.append(error)

    def _await_mark(self, sql: Sql) -> None:
        """Return when a mark shows everything that is committed now."""
        row: Any = sql.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        with self._moved:
            reached = self._moved.wait_for(lambda: self._over or self._reached >= parse_lsn(row[0]), _TIMEOUT_S)
        assert reached, f"no mark has passed {row[0]}"

    def _alter(self, sql: Sql, number: int) -> None:
        chance = self._chance
        table = chance.choice(self._tables)
        possible = [
            one
            for one in statements_of(table, self._types, chance, number)
            if self._exact or one.kind not in ("rename column", "type add", "type rename")
        ]
        statement = chance.choice(possible)
        if statement.waits:
            self._await_mark(sql)
        rolled_back = not statement.alone and chance.random() < 0.1
        try:
            if statement.alone:
                self._alone(sql, table, statement)
            else:
                with sql.transaction() as transaction:
                    self._in_transaction(sql, table, statement)
                    if rolled_back:
                        raise psycopg.Rollback(transaction)
        except psycopg.Error as error:
            self.report.refused[f"{statement.kind}: {str(error).splitlines()[0]:.60}"] += 1
            return
        if rolled_back:
            self.report.altered["rolled back"] += 1
            return
        statement.done()
        self.report.altered[statement.kind] += 1

    def _in_transaction(self, sql: Sql, table: AlteredTable, statement: Statement) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            sql.execute(write(table, self._types, chance).encode())
        if chance.random() < 0.15:
            with sql.transaction() as savepoint:
                sql.execute(f"ALTER TABLE {table.name} ADD COLUMN zz text DEFAULT 'never'".encode())
                sql.execute(write(table, self._types, chance).encode())
                raise psycopg.Rollback(savepoint)
        if statement.recorded == "both":
            sql.execute(f"LOCK TABLE {', '.join(one.name for one in self._tables)}".encode())
        for text in statement.texts:
            sql.execute(text.encode())
        kind, *values = statement.recorded.split()
        for one in self._tables:
            if kind == "both" or (kind == "all" and one is table):
                sql.execute("SELECT recorder.all_rows(%s)", [one.tag])
        if kind == "part":
            sql.execute("SELECT recorder.added_rows(%s, %s::regclass)", [table.tag, values[0]])
        elif kind == "label":
            self._emit(sql, "label", first=values[0], label=values[1])
        elif chance.random() < 0.3:
            with suppress(psycopg.Error), sql.transaction():
                sql.execute(write(table, self._types, chance).encode())

    def _alone(self, sql: Sql, table: AlteredTable, statement: Statement) -> None:
        kind, *values = statement.recorded.split()
        if kind == "leaving":
            self._emit(sql, table.tag, leaving=[int(values[0]), int(values[1]), values[2]])
        done = False
        try:
            for text in statement.texts:
                sql.execute(text.encode())
            done = True
        finally:
            if kind == "leaving":
                self._emit(sql, table.tag, left=done)

    def _emit(self, sql: Sql, tag: str, **event: Any) -> None:
        sql.execute("SELECT pg_logical_emit_message(true, %s, %s)", [tag, json.dumps(event)])


def write(table: AlteredTable, types: TypeNames, chance: random.Random) -> str:
    """Return a statement that writes rows of *table*.

    Those that can change a key write the large value anew: the log would not have it under the new key.
    """
    name, key = table.name, table.id
    low = chance.randrange(KEYS)
    high = low + chance.choice([0, 1, 5, 20])
    label = chance.choice(list(types.labels.values()))
    size = json.dumps({attribute: chance.randrange(9) for attribute in list(types.attributes)})
    body = f"repeat(md5('{low}'), {chance.choice([0, 1, 100])})"
    return chance.choice(
        [
            f"INSERT INTO {name} ({key}, v, name, m, s, body) "
            f"SELECT g, g, 'w{low}', '{label}', jsonb_populate_record(NULL::size, '{size}'), {body} "
            f"FROM generate_series({low}, {min(high, KEYS - 1)}) g ON CONFLICT DO NOTHING",
            f"UPDATE {name} SET v = v + 1, body = body || '' WHERE {key} BETWEEN {low} AND {high}",
            f"UPDATE {name} SET name = 'u{high}', m = '{label}' WHERE {key} BETWEEN {low} AND {high}",
            f"UPDATE {name} SET body = {body} WHERE {key} = {low}",
            f"UPDATE {name} x SET {key} = {high}, body = body || '' WHERE {key} = {low} "
            f"AND NOT EXISTS (SELECT FROM {name} y WHERE y.{key} = {high})",
            f"DELETE FROM {name} WHERE {key} BETWEEN {low} AND {high}",
        ]
    )


def _scanned(feed: Feed) -> set[str]:
    """Return the tables of which a scan is not complete."""
    names = sorted(feed.token["tables"])
    return {names[part[0]] for part in (feed.token["scan"] or {"parts": ()})["parts"]}


def _shown(item: RowBatch | SpanMark) -> object:
    return item.batch.to_pylist() if isinstance(item, RowBatch) else item


def play(uri: str, *, seed: int, statements: int, events: str | None = None) -> Report:
    """Play one seed in the empty database *uri*."""
    with psycopg.connect(uri, autocommit=True) as sql, another_tablespace(sql):
        return SchemaLoad(uri, sql, seed=seed, events=events).play(statements)


def main(seed: int, statements: int) -> int:
    with CopiedPostgres(settings={"fsync": "off"}) as server:
        report = play(server.uri(), seed=seed, statements=statements)
    for kind, count in sorted(report.altered.items()):
        print(f"{count:6} {kind}")
    for reason, count in sorted((report.refused + report.retries).items()):
        print(f"{count:6} refused or tried again: {reason}")
    print(report)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
