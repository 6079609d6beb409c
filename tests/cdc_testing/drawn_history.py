"""Drawn histories of a database, and a consumer whose tables are compared with those of the database at marks."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import psycopg
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_testing.drawn_statements import Catalog, Statement, Table, create_table, create_types, ddl, dml
from cdc_testing.files import paths_in_order
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.postgres import clock

from cdc_core import CdcError, Timestamp
from cdc_core.errors import RetryableError

Row = dict[str, Any]
ROOT = "WITH (publish_via_partition_root = true)"
_LEFT = (
    ("ALTER PUBLICATION p DROP TABLE {t}", "ALTER PUBLICATION p ADD TABLE {t}"),
    (
        "ALTER PUBLICATION p SET (publish = 'insert')",
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate')",
    ),
    ("DROP PUBLICATION p", "CREATE PUBLICATION p FOR TABLE {all} " + ROOT),
    ("ALTER PUBLICATION p SET TABLE {t}", "ALTER PUBLICATION p SET TABLE {all}"),
)
_ALWAYS = ("rows cannot be looked up by a key of type",)
_DML = ("INSERT", "UPDATE", "DELETE")
_DECODER = json.JSONDecoder()


class DifferenceError(AssertionError):
    """A consumer's tables are not those of the database, or a changefeed ended as no document says."""


class EndedError(Exception):
    """The changefeed ended as the documents say."""


class Consumer:
    """Keeps the newest row of each key, of a changefeed into files, as docs/guarantees.md advises."""

    def __init__(self, directory: Path, *, avro: bool) -> None:
        self._directory, self._avro = directory, avro
        self._seen: set[Path] = set()
        self.tables: dict[str, dict[str, tuple[Timestamp, Row | None]]] = {}
        self.rows = 0

    def read(self, *, same: bool) -> str | None:
        """Apply the files that are new. *same*: every row has the shape of the one before; compare `before` with it."""
        wrong = None
        for path in paths_in_order(self._directory):
            if path in self._seen or not isinstance(name := parse_name(str(path)), DataFile):
                continue
            self._seen.add(path)
            table = self.tables.setdefault(name.topic, {})
            for key, message in self._messages(path):
                updated = Timestamp.parse(self._plain(message["updated"]))
                known, old = table.get(key, (Timestamp(), None))
                self.rows += 1
                if updated <= known:
                    continue
                row = self._row(message["after"])
                for lacking in self._plain(message.get("unavailable")) or ():
                    if row is not None and old is not None and lacking in old:
                        row[lacking] = old[lacking]
                if same and "before" in message and _known(before := self._row(message["before"])) != _known(old):
                    wrong = f"{name.topic} {key}: `before` is {before}, the consumer has {old}"
                table[key] = updated, row
        return wrong

    def _messages(self, path: Path) -> Iterator[tuple[str, Row]]:
        if self._avro:
            with path.open("rb") as file:
                for record in fastavro.reader(file):
                    assert isinstance(record, dict)
                    yield repr(list(record["key"].values())), record
        else:
            for line in path.read_bytes().decode().removesuffix("\n").split("\n"):
                message = _members(line)
                yield message["key"], message

    def _plain(self, value: Any) -> Any:
        return value if self._avro or value is None else json.loads(value)

    def _row(self, value: Any) -> Row | None:
        return value if self._avro else None if value == "null" else _members(value)

    def text(self, row: Row, catalog: Catalog, table: Table) -> str:
        """Return *row* as an object of JSON that the server reads as a row of *table*."""
        if self._avro:
            types = {name: (oid, full) for name, oid, full in table.columns}
            row = {name: _text(row[name], catalog, *types[name]) for name in row.keys() & types.keys()}
        return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in row.items()) + "}"


class DrawnHistory:
    """History *number* of *seed*: one changefeed of the database at *uri*, and what happens to its tables."""

    def __init__(self, uri: str, directory: Path, *, seed: str) -> None:
        self.chance = chance = random.Random(seed)
        self.seed, self._uri = seed, uri
        self.sql = psycopg.connect(uri, autocommit=True)
        self.sql.execute("SET timezone = 'UTC'; SET lock_timeout = '100ms'")
        for extension in ("citext", "ltree", "hstore"):
            self.sql.execute(f"CREATE EXTENSION {extension}")
        self.counts: Counter[str] = Counter()
        self.ended = ""
        self.last: deque[str] = deque(maxlen=30)
        self._number = 0
        self._armed = list(_ALWAYS)
        self._made: set[str] = set()
        self._dropped: set[str] = set()
        self._keyed: set[int] = set()
        self._altered = False
        self._started = self._running = False
        self._catalog: Catalog | None = None
        avro, diff, own = chance.random() < 0.5, chance.random() < 0.5, chance.random() < 0.5
        self._renames = chance.random() < 0.7
        for _ in range(5):
            self._create([create_types(chance, self.catalog, self._next()).text])
        for name in "tuv":
            full = diff or chance.random() < 0.3
            while not self._create(create_table(chance, self.catalog, name, full=full, parted=name == "v")):
                pass
        self.topics = {oid: table.name for oid, table in self.catalog.tables.items()}
        self._forms = self._key_forms()
        options: dict[str, Any] = {"diff": diff, "avro_special_values": "string"} if avro else {"diff": diff}
        options["schema_change_events"] = "column_changes" if self._renames else "default"
        if not own:
            self.sql.execute(f"CREATE PUBLICATION p FOR TABLE t, u, v {ROOT}")
            options["publication_name"] = "p"
        self.options = f"{'avro' if avro else 'json'} {options}"
        feed = resolved_feed(
            uri, f"file://{directory}/out", "t", "u", "v", options=options, format_="avro" if avro else "json"
        )
        self.engine = LocalEngine(feed, directory / "state")
        self.consumer = Consumer(directory / "out", avro=avro)
        (directory / "out").mkdir()

    @property
    def catalog(self) -> Catalog:
        self._catalog = self._catalog or Catalog(self.sql)
        return self._catalog

    def run(self, statements: int) -> None:
        """Execute about *statements*, or fewer when the changefeed ends as it must. Raises: DifferenceError."""
        with self.sql, closing(self.engine):
            for _ in range(self.chance.randint(0, 20)):
                self._transaction()
            with suppress(EndedError):
                self._start()
                self._mark()
                while self.counts["statements"] < statements:
                    self._something()
                self._mark()

    def _something(self) -> None:
        chance = self.chance
        drawn = chance.random()
        if drawn < 0.07:
            self.last.append("-- stopped")
            self.engine.close()
            self._running = False
            for _ in range(chance.randint(0, 4)):
                self._transaction()
            self._start()
        elif drawn < 0.1:
            self._two_sessions()
        elif drawn < 0.11:
            self._publication()
        else:
            self._transaction()
        if chance.random() < 0.3:
            self._step()
        if chance.random() < 0.4:
            self._mark()

    def _transaction(self) -> None:
        chance = self.chance
        done: list[Statement] = []
        if chance.random() < 0.3:
            with suppress(psycopg.Error):
                done.append(self._execute(self._draw(ddl_share=0.5, large=True)))
            return self._committed(done)
        altering, savepoints, undone = chance.random() < 0.4, chance.random() < 0.5, chance.random() < 0.1
        self.last.append("BEGIN")
        try:
            with self.sql.transaction(force_rollback=undone):
                for _ in range(chance.randint(2, 6)):
                    statement = self._draw(ddl_share=0.35 if altering else 0, large=not altering)
                    if not savepoints:
                        done.append(self._execute(statement))
                    else:
                        back = chance.random() < 0.15
                        with suppress(psycopg.Error), self.sql.transaction(force_rollback=back):
                            found = self._execute(statement)
                            self.last.append("-- ROLLBACK TO" if back else "-- RELEASE")
                            done += [] if back else [found]
                    if self._running and not altering and not self._altered and chance.random() < 0.05:
                        self._step()
        except psycopg.Error:
            undone = True
        self._catalog = None if altering else self._catalog
        self.last.append("ROLLBACK" if undone else "COMMIT")
        return self._committed([] if undone else done)

    def _two_sessions(self) -> None:
        """Two transactions of rows at a time, while the changefeed runs."""
        if self._altered:
            self._mark()
        keyed = [table for table in self.catalog.tables.values() if table.key]
        if len(keyed) < 2:
            return
        first, second = self.chance.sample(keyed, 2)
        with psycopg.connect(self._uri) as other:
            other.execute("SET lock_timeout = '100ms'")
            for _ in range(self.chance.randint(1, 4)):
                with suppress(psycopg.Error), other.transaction():
                    self._execute(dml(self.chance, self.catalog, second), other)
                with suppress(psycopg.Error):
                    self._execute(dml(self.chance, self.catalog, first))
                if self.chance.random() < 0.5:
                    self._step()

    def _publication(self) -> None:
        """Alter the publication and restore it, with rows in between."""
        tables = [f"{table.name}" for oid, table in self.catalog.tables.items() if oid in self.topics]
        for text in self.chance.choice(_LEFT):
            with suppress(psycopg.Error):
                statement = text.format(t=self.chance.choice(tables), all=", ".join(tables))
                self._committed([self._execute(Statement(statement, "publication"))])
            self._transaction()

    def _draw(self, *, ddl_share: float, large: bool) -> Statement:
        catalog = self.catalog
        followed = [table for oid, table in catalog.tables.items() if oid in self.topics and table.key]
        if not followed:
            raise EndedError("no table has a key")
        tables = [table for table in followed if large or not table.large]
        table = self.chance.choice(tables or followed)
        if tables and self._started and self.chance.random() < ddl_share:
            return ddl(self.chance, catalog, table, self._next(), renames=self._renames)
        return dml(self.chance, catalog, table)

    def _execute(self, statement: Statement, sql: psycopg.Connection[Any] | None = None) -> Statement:
        self.last.append(f"{statement.text};")
        try:
            (sql or self.sql).execute(statement.text.encode())
        except psycopg.Error as error:
            self.last[-1] += f"  -- {str(error).splitlines()[0]}"
            self.counts["refused"] += 1
            raise
        self.counts["statements"] += 1
        if not statement.text.startswith(_DML):
            self._catalog = None
        return statement

    def _committed(self, done: Iterable[Statement]) -> None:
        """Note what *done* may cause: errors that the documents name, and keys that are written otherwise."""
        for statement in done:
            self._altered |= not statement.text.startswith(_DML)
            self._armed += [statement.ends] if statement.ends else []
            touched = {statement.drops} & (self._made | self._dropped) | {statement.makes} & self._dropped
            self._armed += [re.escape(name) for name in touched if name]
            self._made.add(statement.makes)
            self._dropped.add(statement.drops)
        if self._altered:
            forms = self._key_forms()
            self._keyed |= {oid for oid, form in forms.items() if self._forms.get(oid) != form}
            self._forms = forms
            if not all(table.key for table in self.catalog.tables.values()):
                self._armed.append("key|never resolved")

    def _key_forms(self) -> dict[int, Any]:
        return {oid: self.catalog.key_form(table) for oid, table in self.catalog.tables.items()}

    def _take(self, do: Any, *, most: int = 30) -> None:
        """Call *do*, and an attempt after a failure that is tried again. Raises: EndedError, DifferenceError."""
        for _ in range(most):
            try:
                do()
                return
            except RetryableError as error:
                self.last.append(f"-- again: {error}"[:300])
                self.counts["again"] += 1
                do = self.engine.run if do == self.engine.run else do
                self.engine.attempt()
            except (CdcError, AssertionError) as error:
                if any(re.search(expected, str(error), re.IGNORECASE) for expected in self._armed):
                    self.counts["ended"] += 1
                    self.ended = f", ended after {self.last[-1]}: {error}"
                    raise EndedError from error
                raise self._different(f"{type(error).__name__}: {error}") from error
        raise self._different(f"tried {most} times")

    def _start(self) -> None:
        self.last.append("-- start")
        self._take(self.engine.run)
        self._started = self._running = True

    def _step(self) -> None:
        self.last.append("-- step")
        self._take(self.engine.step)

    def _mark(self) -> None:
        """Resolve all that is committed, and compare."""
        now = clock(self._uri)
        self._take(lambda: self.engine.until(now))
        if wrong := self.consumer.read(same=self._renames and not self._altered and self.counts["marks"] > 0):
            raise self._different(wrong)
        catalog = self.catalog
        for oid, topic in self.topics.items():
            self._compare(catalog, catalog.tables[oid], topic)
        self.last.append("-- mark")
        self.counts["marks"] += 1
        self._altered = False
        self._keyed, self._made, self._dropped, self._armed = set(), set(), set(), list(_ALWAYS)

    def _compare(self, catalog: Catalog, table: Table, topic: str) -> None:
        name = table.name
        expected = Counter(text for (text,) in self.sql.execute(f"SELECT t::text FROM {name} t".encode()))
        kept = self.consumer.tables.setdefault(topic, {})
        newest = sorted(((when, key) for key, (when, row) in kept.items() if row is not None), reverse=True)
        if table.oid in self._keyed:
            # Rows under old keys remain at a consumer: they are older than those that were emitted again.
            for _, key in newest[expected.total() :]:
                del kept[key]
        texts = [self.consumer.text(kept[key][1] or {}, catalog, table) for _, key in newest if key in kept]
        query = f"SELECT json_populate_record(NULL::{name}, x)::text FROM unnest(%s::json[]) x"
        try:
            found = Counter(text for (text,) in self.sql.execute(query.encode(), [texts]))
        except psycopg.Error as error:
            raise self._different(f"{name} ({topic}): {error}") from error
        self.counts["rows"] += expected.total()
        if found != expected:
            raise self._different(f"{name} ({topic}): missing {expected - found}, extra {found - expected}")

    def _different(self, what: str) -> DifferenceError:
        number = self.counts["statements"]
        lines = (f"seed {self.seed}, statement {number}, {self.options}", what, *self.last)
        return DifferenceError("\n".join(lines))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _create(self, texts: list[str]) -> bool:
        with suppress(psycopg.Error), self.sql.transaction():
            for text in texts:
                self.sql.execute(text.encode())
            self.last.append("; ".join(texts))
            self._catalog = None
            return True
        return False


def _members(text: str) -> dict[str, str]:
    """Return the values of an object of JSON as they are written."""
    found: dict[str, str] = {}
    at = 1
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip(", ")))
        begin = end + len(text[end:]) - len(text[end:].lstrip(": "))
        _, at = _DECODER.raw_decode(text, begin)
        found[name] = text[begin:at]
    return found


def _known(row: Row | None) -> dict[str, str] | None:
    return None if row is None else {name: repr(value) for name, value in row.items() if value not in (None, "null")}


def _text(value: Any, catalog: Catalog, oid: int, name: str) -> str:
    """Return a value of Avro as the text of JSON from which the server reads a value of the type."""
    type_ = catalog.types.get(oid)
    if value is None:
        return "null"
    if type_ is not None and type_.base:
        return _text(value, catalog, type_.base, type_.base_name)
    if type_ is not None and type_.item and isinstance(value, list):
        return "[" + ", ".join(_text(item, catalog, type_.item, type_.item_name) for item in value) + "]"
    if name == "jsonb" or (type_ is not None and type_.kind == "c"):
        return str(value)
    if isinstance(value, float):
        return json.dumps(str(value))
    if isinstance(value, Decimal):
        return f'"{value:f}"'
    if isinstance(value, bytes):
        return json.dumps("\\x" + value.hex())
    return json.dumps(value if isinstance(value, bool | int | str) else str(value))
