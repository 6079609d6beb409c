"""What became of traced changes is saved by whoever finds it out, and a trace that fails ends no step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from cdc_core.delivery.tracing import TraceWriter
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.tables import TRACES
from cdc_core.store.traced_change import TracedChange
from cdc_core.timestamp import Timestamp


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    with closing(ProgressStore(store_url(tmp_path))) as store:
        yield store


def asked(store: ProgressStore) -> int:
    return store.traces.ask("feed", table=None, key=None, most=9, seconds=600)


def change(key: int, *numbers: int, wall: int = 1) -> TracedChange:
    return TracedChange(
        table="t",
        key=f"[{key}]",
        op="update",
        updated=Timestamp(wall),
        position="0/1",
        step=1,
        moments={"planned": 1.0, "read": 2.0},
        traces=numbers,
    )


def stages(store: ProgressStore, number: int) -> dict[str, list[str]]:
    return {each.key: list(each.moments) for each in (store.traces.load(number) or {}).values()}


def test_each_trace_gets_the_changes_that_it_looks_for(store: ProgressStore) -> None:
    one, other = asked(store), asked(store)
    TraceWriter(store).write([change(1, one), change(2, one, other)])
    read = ["planned", "read"]
    assert (stages(store, one), stages(store, other)) == ({"[1]": read, "[2]": read}, {"[2]": read})


@pytest.mark.parametrize("marks", [True, False])
def test_a_change_is_complete_with_its_mark_or_without_marks_when_it_is_saved(
    store: ProgressStore, *, marks: bool
) -> None:
    number = asked(store)
    given = [change(1, number, wall=5), change(2, number, wall=9)]
    writer = TraceWriter(store, marks=marks)
    writer.saved(given)
    assert stages(store, number) == {key: ["planned", "read", "saved"] for key in ("[1]", "[2]")}
    assert [each.complete for each in (store.traces.load(number) or {}).values()] == [not marks] * 2
    for mark in (5, 5, 9):
        writer.resolved(Timestamp(mark))
    resolved = ["resolved"] if marks else []
    assert stages(store, number) == {key: ["planned", "read", "saved", *resolved] for key in ("[1]", "[2]")}
    assert all(each.complete for each in (store.traces.load(number) or {}).values())
    assert given == [change(1, number, wall=5), change(2, number, wall=9)]


def test_a_trace_that_the_store_does_not_take_ends_no_step_and_no_other_trace(
    store: ProgressStore, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = asked(store), asked(store)
    with sa.create_engine(store.url).begin() as connection:
        connection.execute(sa.update(TRACES).where(TRACES.c.id == broken).values(found="spoiled"))
    writer = TraceWriter(store, marks=True)
    writer.saved([change(1, broken, other)])
    writer.resolved(Timestamp(1))
    assert stages(store, other) == {"[1]": ["planned", "read", "saved", "resolved"]}
    assert "the changefeed continues without it" in caplog.text
