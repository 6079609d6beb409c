"""Batches that another thread takes from a source: their order, how many wait, and the end of the thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator

import pyarrow as pa
import pytest
from cdc_rangefeed_postgres import read_ahead as module
from cdc_rangefeed_postgres.read_ahead import StillReadingError, read_ahead
from cdc_testing.runs import eventually

NUMBER = 8  # bytes of one

ThreadsAhead = Callable[[], set[threading.Thread]]


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def numbers_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is interrupted before it has had much time to end by itself."""
    monkeypatch.setattr(module, "_INTERRUPT_AFTER_S", 60.0)


def nothing() -> None:
    raise AssertionError("nothing waits")


@pytest.mark.usefixtures("patient")
def test_batches_come_in_order_and_the_source_is_closed_in_its_own_thread(threads_ahead: ThreadsAhead) -> None:
    closed_in: list[str] = []

    def source() -> Generator[pa.RecordBatch]:
        try:
            for number in range(1000):
                yield batch(number)
        finally:
            closed_in.append(threading.current_thread().name)

    assert numbers_of(read_ahead(source(), max_bytes=5 * NUMBER, interrupt=nothing)) == list(range(1000))
    assert closed_in == ["cdc-read-ahead"]
    assert threads_ahead() == set()


@pytest.mark.usefixtures("patient")
def test_the_source_is_not_asked_again_while_as_much_waits_as_may() -> None:
    taken: list[int] = []

    def source() -> Generator[pa.RecordBatch]:
        for number in range(20):
            taken.append(number)
            yield batch(number, number)

    batches = read_ahead(source(), max_bytes=6 * NUMBER, interrupt=nothing)
    for given in range(1, 18):
        next(batches)
        eventually("three batches to wait", lambda given=given: len(taken) == given + 3)
    assert len(numbers_of(batches)) == 6


@pytest.mark.usefixtures("patient")
def test_a_batch_larger_than_the_limit_passes() -> None:
    def source() -> Generator[pa.RecordBatch]:
        yield batch(*range(100))
        yield batch(*range(100, 200))

    assert numbers_of(read_ahead(source(), max_bytes=1, interrupt=nothing)) == list(range(200))


@pytest.mark.usefixtures("patient")
def test_an_error_comes_after_the_batches_before_it(threads_ahead: ThreadsAhead) -> None:
    def source() -> Generator[pa.RecordBatch]:
        yield batch(1)
        raise LookupError("lost")

    batches = read_ahead(source(), max_bytes=100, interrupt=nothing)
    assert next(batches) == batch(1)
    with pytest.raises(LookupError, match="lost"):
        next(batches)
    assert threads_ahead() == set()


def test_a_source_that_waits_is_interrupted_until_it_ends(threads_ahead: ThreadsAhead) -> None:
    """The first interruptions come while the source is between two calls that wait."""
    interrupted, calls = threading.Event(), []

    def source() -> Generator[pa.RecordBatch]:
        yield batch(1)
        interrupted.wait()
        yield batch(2)

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == 3:
            interrupted.set()

    batches = read_ahead(source(), max_bytes=100, interrupt=interrupt)
    next(batches)
    close(batches)
    assert len(calls) >= 3
    assert threads_ahead() == set()


@pytest.mark.usefixtures("patient")
def test_a_source_that_waits_for_room_ends_at_once(threads_ahead: ThreadsAhead) -> None:
    def source() -> Generator[pa.RecordBatch]:
        while True:
            yield batch(1)

    batches = read_ahead(source(), max_bytes=1, interrupt=nothing)
    next(batches)
    close(batches)
    assert threads_ahead() == set()


def test_a_thread_that_no_interruption_reaches_is_reported_and_its_source_closed_after_it(
    monkeypatch: pytest.MonkeyPatch, threads_ahead: ThreadsAhead
) -> None:
    monkeypatch.setattr(module, "_END_LIMIT_S", 0.0)
    release = threading.Event()

    def source() -> Generator[pa.RecordBatch]:
        yield batch(1)
        release.wait()

    batches = read_ahead(source(), max_bytes=100, interrupt=lambda: None)
    next(batches)
    with pytest.raises(StillReadingError, match="did not respond within 0 s when reading was ended") as raised:
        close(batches)
    left: list[bool] = []
    raised.value.afterwards(lambda: left.append(bool(threads_ahead())))
    assert not left
    release.set()
    eventually("what it read from to be closed", lambda: left)
    assert left == [False]


def close(batches: Iterator[pa.RecordBatch]) -> None:
    stop: Callable[[], None] = batches.close  # type: ignore[attr-defined]
    stop()
