from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.files import paths_in_order
from cdc_testing.local_engine import LocalEngine

from cdc_core import ContractError, RowBatch, Slice, SliceReader, SpanMark


class Late:
    """Stands in front of a reader: keeps the rows of one slice back, although it marks them, until the next one."""

    def __init__(self) -> None:
        self.kept: list[RowBatch] = []
        self.keep = False

    def __call__(self, reader: SliceReader) -> SliceReader:
        read = reader.read

        def late(slice_: Slice) -> Iterator[RowBatch | SpanMark]:
            given, self.kept = ([], self.kept) if self.keep else (self.kept, [])
            for item in read(slice_):
                if self.keep and isinstance(item, RowBatch):
                    self.kept.append(item)
                    continue
                yield from given
                given = []
                yield item

        reader.read = late  # type: ignore[method-assign]
        return reader


def test_a_row_that_comes_after_it_was_resolved_stops_the_changefeed_and_is_named(
    db: SimulatedDatabase, out: Path, engine: Callable[..., LocalEngine]
) -> None:
    """A104309: a range was resolved before all of its writes were read, and the late ones were dropped in silence."""
    db.create_table("t")
    late = Late()
    feed = engine("t", wrap_reader=late)
    feed.run()
    feed.until(db.now)
    late.keep = True
    db.put("t", id=7, n=1)
    feed.until(db.now)
    late.keep = False
    before = paths_in_order(out)
    db.put("t", id=8, n=1)
    with pytest.raises(ContractError) as caught:
        feed.until(db.now)
    assert "SimulatedReader broke its contract" in str(caught.value)
    assert "the row of table public.t with key {'id': 7}" in str(caught.value)
    assert paths_in_order(out) == before, "nothing may be delivered with the late row, and nothing resolved after it"


def test_a_transaction_that_is_open_for_long_holds_back_what_is_resolved_of_its_range_only(
    db: SimulatedDatabase, engine: Callable[..., LocalEngine], faults: Callable[..., list[str]]
) -> None:
    """A104309, at the source: a transaction of many minutes commits below everything that was read meanwhile."""
    db.create_table("t")
    db.split("t", at=100)
    feed = engine("t")
    feed.run()
    feed.until(db.now)
    txn = db.begin()
    txn.put("t", id=1, n=1)
    others = [db.put("t", id=id_, n=id_) for id_ in (2, 3, 100, 101)]
    for _ in range(40):
        db.tick()
        feed.step()
    latest = feed.progress.frontier.latest
    assert latest > others[-1], "the other range goes on"
    assert feed.high_water < others[0], "its own range waits"
    assert txn.commit() < latest
    feed.until(db.settle())
    assert faults(["t"]) == []
