"""Reading the files of a changefeed: every row once, in any format, without the database."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_cloudstorage.stored_bodies import StoredBodies
from cdc_testing.fixtures import fresh_database
from cdc_testing.local_engine import LocalEngine, installed_plugins, resolved_feed

from cdc_core import ChangeReader, ConfigError, HistoryLostError, Op, OptionError, RowBatch, Timestamp
from cdc_core.errors import UnknownPluginError

Seen = list[tuple[int, str | None, Timestamp]]


class Shop:
    """A changefeed of the table `orders` into files. Each commit is followed up to a mark."""

    def __init__(self, database: str, directory: Path) -> None:
        self.database = database
        self.directory = directory
        self.uri = f"file://{directory}/files"
        self.engine: LocalEngine | None = None
        self.commit("CREATE TABLE orders (id bigint PRIMARY KEY, note text, price numeric(10,2))")
        self.commit("INSERT INTO orders SELECT n, 'order ' || n, n / 4.0 FROM generate_series(1, 50) n")

    def manifests(self) -> list[Path]:
        """Return the manifests in the order of their marks."""
        return sorted((self.directory / "files").glob("*/*.MANIFEST.*"))

    def run(self, *tables: str, format_: str = "json", **options: Any) -> None:
        """Begin a run with these options and follow up to a first mark."""
        options = {"file_size": "1KB", **options}
        feed = resolved_feed(self.database, self.uri, "public.orders", *tables, format_=format_, options=options)
        self.engine = LocalEngine(feed, self.directory / "t")
        self.engine.run()
        while not self.engine.high_water:
            self.engine.step()

    def commit(self, *statements: str) -> None:
        with psycopg.connect(self.database) as connection:
            for statement in statements:
                connection.execute(statement)
        if self.engine is not None:
            before = self.engine.high_water
            while self.engine.high_water <= before:
                self.engine.step()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader would look for the installed plugins, which takes as long as it takes to read."""
    plugins = installed_plugins()
    monkeypatch.setattr("cdc_core.readback.reader.PluginHost.load", lambda: plugins)


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(database, tmp_path)
    yield shop
    if shop.engine is not None:
        shop.engine.close()


@pytest.fixture(scope="module")
def changed(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The files of a scan and of two changes after it. Tests leave them as they are."""
    with fresh_database(postgres_server) as database:
        shop = Shop(database, tmp_path_factory.mktemp("changed"))
        shop.run()
        for note in ("new", "newer"):
            shop.commit(f"UPDATE orders SET note = '{note}' WHERE id = 1")
        assert shop.engine is not None
        shop.engine.close()
        yield shop


def seen(batches: Iterator[RowBatch]) -> Seen:
    """Return key, note and time of the rows, in order. The note of a deleted row is None."""
    found: Seen = []
    for rows in batches:
        columns = (rows.column(name).to_pylist() for name in ("key", "after", "updated"))
        for key, after, updated in zip(*columns, strict=True):
            found.append((key["id"], None if after is None else after["note"], Timestamp(**updated)))
    return found


@pytest.mark.parametrize(("format_", "compression"), [("json", "zstd"), ("avro", "gzip"), ("parquet", "zstd")])
def test_the_rows_between_marks_add_up_to_all_rows(shop: Shop, format_: str, compression: str) -> None:
    shop.run(format_=format_, compression=compression)
    shop.commit("UPDATE orders SET note = 'new' WHERE id <= 20")
    shop.commit("DELETE FROM orders WHERE id = 3", "INSERT INTO orders VALUES (51, NULL, -1)")
    with ChangeReader(shop.uri) as reader:
        marks = reader.marks()
        whole = seen(reader.read())
        parts = [
            seen(reader.read(after=after, upto=upto)) for after, upto in zip([Timestamp(), *marks], marks, strict=False)
        ]
        spans = list(zip(parts, [Timestamp(), *marks], marks, strict=False))
        assert [row for part in parts for row in part] == whole
        assert len(whole) == len(set(whole)) == 50 + 20 + 2
        assert all(after < updated <= upto for part, after, upto in spans for _, _, updated in part)
        assert [note for key, note, _ in whole if key == 3] == ["order 3", "new", None]
        (last,) = [rows for rows in reader.read(after=marks[-2]) if 51 in rows.column("key").field("id").to_pylist()]
        index = last.column("key").field("id").to_pylist().index(51)
        assert last.column("after")[index].as_py() == {"id": 51, "note": None, "price": "-1.00"}
        assert Op.DELETE in last.column("op").to_pylist()


def test_a_time_between_two_marks_reads_up_to_the_earlier_mark(changed: Shop) -> None:
    with ChangeReader(changed.uri) as reader:
        *_, before, last = reader.marks()
        assert reader.newest(last.prev()) == before
        assert len(seen(reader.read(upto=last.prev()))) == 51
        with pytest.raises(ConfigError, match=f"has no resolved mark up to {Timestamp(5)}; the first mark is"):
            list(reader.read(upto=Timestamp(5)))


def test_reading_up_to_the_newest_mark_lists_the_files_once(changed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    listings: list[StoredBodies] = []
    paths = StoredBodies.paths

    def counted(stored: StoredBodies) -> Any:
        listings.append(stored)
        return paths(stored)

    monkeypatch.setattr(StoredBodies, "paths", counted)
    with ChangeReader(changed.uri) as reader:
        assert len(seen(reader.read(upto=reader.newest()))) == 52
        assert len(listings) == 1
        assert len(seen(reader.read())) == 52
        assert len(listings) == 2


def test_files_are_read_without_the_database_by_a_pickled_reader(shop: Shop) -> None:
    shop.run()
    shop.commit("ALTER TABLE orders ADD COLUMN size int", "UPDATE orders SET size = 7 WHERE id = 1")
    with psycopg.connect(shop.database) as connection:
        connection.execute("DROP TABLE orders")
    reader = pickle.loads(pickle.dumps(ChangeReader(shop.uri)))
    versions = {rows.schema.version: rows.schema for rows in reader.read(table="orders")}
    assert [[column.name for column in versions[number].columns] for number in (1, 2)] == [
        ["id", "note", "price"],
        ["id", "note", "price", "size"],
    ]
    assert versions[2].column("price").type.source == "numeric(10,2)"


def test_a_table_name_may_omit_the_schema(changed: Shop) -> None:
    with ChangeReader(changed.uri) as reader:
        for name in ("orders", "public.orders", None):
            assert len(seen(reader.read(table=name))) == 52
        mark = reader.newest()
        for after in (Timestamp(), mark):
            with pytest.raises(ConfigError, match=r"has no file with rows of table 'users'"):
                list(reader.read(table="users", after=after))
        assert list(reader.read(table="orders", after=mark)) == []


def test_a_table_without_new_rows_is_found_in_old_files(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.readback.reader._FIRST_REACH", 1)
    with psycopg.connect(shop.database) as connection:
        connection.execute("CREATE TABLE notes (id int PRIMARY KEY)")
    shop.run("public.notes")
    for number in range(8):
        shop.commit(f"INSERT INTO notes VALUES ({number})")
    with ChangeReader(shop.uri) as reader:
        *_, last = marks = reader.marks()
        assert list(reader.read(table="orders", after=last)) == []
        file = reader.latest_file("orders", upto=last)
        assert file is not None
        assert file.mark == marks[0]
        with pytest.raises(ConfigError, match="has no file with rows"):
            list(reader.read(table="order", after=last))
        shop.manifests()[0].unlink()
        assert list(reader.read(table="order", after=last)) == []  # it may have been in the missing files


def test_reading_after_a_time_that_is_not_a_mark_is_refused(changed: Shop) -> None:
    with ChangeReader(changed.uri) as reader:
        first, before, last = reader.marks()
        for after, near in (
            (last.prev(), f"Choose {before} or {last}"),
            (last.next(), f"Choose {last}"),
            (Timestamp(5), f"Choose {first}"),
        ):
            with pytest.raises(ConfigError, match=f"cannot read after {after}: it is not a resolved mark .* {near}$"):
                list(reader.read(after=after))
            with pytest.raises(ConfigError, match=near):
                list(reader.files(after=after))
        assert list(reader.read(after=last)) == []
        assert list(reader.read(after=last, upto=before)) == []
        lost = changed.manifests()[0]
        text = lost.read_text()
        lost.unlink()
        try:
            with pytest.raises(HistoryLostError, match=f"cannot be read after {Timestamp(5)}: .* Read after"):
                list(reader.read(after=Timestamp(5)))
        finally:
            lost.write_text(text)


def test_the_error_for_files_without_times_names_the_missing_option(shop: Shop) -> None:
    shop.run(updated=False)
    with (
        ChangeReader(shop.uri) as reader,
        pytest.raises(HistoryLostError, match=r"cannot be decoded as json: .*updated"),
    ):
        list(reader.read())


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("file:///nowhere/at/all", ConfigError, "there is no manifest below file:///nowhere/at/all"),
        ("kafka://localhost:9092", ConfigError, "sink 'kafka' keeps no history, so"),
        ("nosuch://x", UnknownPluginError, "nosuch"),
        ("file:///x?nosuch=1", OptionError, "sink 'cloudstorage' has no option 'nosuch'"),
        ("file:///x?file_size=1&FILE_SIZE=2", OptionError, r"ChangeReader\(.*\) sets 'file_size' twice"),
    ],
    ids=["empty", "no-history", "no-sink", "no-option", "twice"],
)
def test_the_error_for_an_unreadable_uri_says_why(uri: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ChangeReader(uri).marks()
