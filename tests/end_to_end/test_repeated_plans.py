"""A step that broke off is repeated by the next run, into the same files, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_sink_cloudstorage.names import DataFile, parse_name
from cdc_testing.local_engine import LocalEngine, resolved_feed
from cdc_testing.runs import eventually

from cdc_core import Flushed, RetryableError, RowBatch, Sink, SliceInfo
from cdc_core.readback.reader import ChangeReader

OPTIONS: dict[str, Any] = {"file_size": "2KB", "max_step_bytes": "1MB", "fetch_size": "64KB"}


class DyingSink(Sink):
    """Stands in front of a sink and dies in the middle of a slice when told: after so many batches, before `flush`."""

    after_batches: int | None = None

    def __init__(self, inner: Sink) -> None:
        super().__init__(inner.context)
        self.inner = inner
        self.batches = 0

    def begin(self, slice_: SliceInfo) -> None:
        self.batches = 0
        self.inner.begin(slice_)

    def emit(self, rows: RowBatch) -> None:
        for offset in range(0, len(rows), 50):
            self.inner.emit(rows.slice(offset, 50))
            self.batches += 1
            if self.batches == DyingSink.after_batches:
                getattr(self.inner, "_uploads").wait()  # noqa: B009
                raise RetryableError("the process died")

    def flush(self) -> Flushed:
        return self.inner.flush()

    def close(self) -> None:
        self.inner.close()


@contextmanager
def dying(after_batches: int) -> Iterator[None]:
    DyingSink.after_batches = after_batches
    try:
        with pytest.raises(RetryableError, match="the process died"):
            yield
    finally:
        DyingSink.after_batches = None


def data_files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if isinstance(parse_name(path.name), DataFile)
    }


def engine_of(database: str, directory: Path, **options: Any) -> LocalEngine:
    feed = resolved_feed(database, f"file://{directory}/files", "public.orders", options={**OPTIONS, **options})
    return LocalEngine(feed, directory, wrap_sink=DyingSink)


@pytest.fixture
def engine(database: str, tmp_path: Path) -> Iterator[LocalEngine]:
    """A changefeed that has done its initial scan, of an empty table."""
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text, mood interval)")
    engine = engine_of(database, tmp_path)
    engine.run()
    step_until_idle(engine)
    yield engine
    engine.close()


def step_until_idle(engine: LocalEngine) -> None:
    while engine.step():
        if engine.high_water and engine.progress.token["scan"] is None:
            return


def step_until_it_dies(engine: LocalEngine) -> None:
    """The first step may have none of the rows."""
    for _ in range(2000):
        engine.step()


def insert(database: str, first: int, last: int) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(%s::int, %s) n", [first, last]
        )


def lines(files: Mapping[str, bytes]) -> list[bytes]:
    return [line for body in files.values() for line in body.splitlines()]


def test_a_step_that_broke_off_is_repeated_into_the_same_files(
    engine: LocalEngine, database: str, tmp_path: Path
) -> None:
    root = tmp_path / "files"
    insert(database, 1, 1000)
    with dying(after_batches=9):
        step_until_it_dies(engine)
    torso = data_files(root)
    assert len(torso) > 5
    insert(database, 1001, 1100)
    engine.run()
    with dying(after_batches=14):
        step_until_it_dies(engine)
    longer = data_files(root)
    assert len(longer) > len(torso)
    assert longer.items() > torso.items()
    engine.run()
    assert not engine.progress.counters.get("rows_repeated")
    eventually("a step", engine.step)
    assert engine.progress.counters["rows_repeated"] == 1000
    whole = data_files(root)
    assert whole.items() > longer.items()
    assert len(lines(whole)) == len(set(lines(whole))) == 1000
    names = [parse_name(path) for path in whole]
    assert {name.epoch % 2**40 for name in names if isinstance(name, DataFile)} == {1}
    eventually("the later rows", lambda: engine.step() and len(lines(data_files(root))) == 1100)
    assert len(set(lines(data_files(root)))) == 1100
    assert engine.progress.counters["rows_repeated"] == 1000


def test_a_step_that_several_tasks_deliver_is_repeated_into_the_same_files(
    engine: LocalEngine, database: str, tmp_path: Path
) -> None:
    engine.close()
    root = tmp_path / "files"
    insert(database, 1, 1000)
    with closing(engine_of(database, tmp_path, delivery_tasks=3)) as divided:
        divided.run()
        with dying(after_batches=5):
            step_until_it_dies(divided)
        torso = data_files(root)
        assert torso
        divided.run()
        eventually("all rows", lambda: divided.step() and len(lines(data_files(root))) == 1000)
        assert divided.progress.counters["rows_repeated"] == 1000
    whole = data_files(root)
    assert whole.items() > torso.items()
    assert len(set(lines(whole))) == 1000
    names = [parse_name(path) for path in whole]
    assert {name.slice_index for name in names if isinstance(name, DataFile)} == {0, 1, 2}


def test_a_step_that_would_be_cut_otherwise_gets_names_of_its_own(
    engine: LocalEngine, database: str, tmp_path: Path
) -> None:
    insert(database, 1, 1000)
    with dying(after_batches=9):
        step_until_it_dies(engine)
    torso = data_files(tmp_path / "files")
    engine.close()
    other = engine_of(database, tmp_path, file_size="3KB")
    other.run()
    eventually("a step", other.step)
    assert other.progress.counters["rows_repeated"] == 1000
    whole = data_files(tmp_path / "files")
    other.close()
    assert whole.items() > torso.items()
    assert len(set(lines(whole))) == 1000 < len(lines(whole))
    with ChangeReader(f"file://{tmp_path}/files") as reader:
        ids = [key for rows in reader.read() for key in rows.column("key").field("id").to_pylist()]
    assert sorted(ids) == list(range(1, 1001))
