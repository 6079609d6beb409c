"""Traced changes in a slice: which rows are found, and what becomes of those that the sink does not get."""

from __future__ import annotations

import pytest
from cdc_testing.table_rows import Row, make_rows

from cdc_core import Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema, Timestamp
from cdc_core.delivery.tracing import FollowedChanges, StepTrace, TraceRequest, WantedChanges, key_text
from cdc_core.errors import FencedError
from cdc_core.store.values import DeadLetter


def wanted(*requests: TraceRequest) -> WantedChanges:
    trace = StepTrace(requests=requests, planned=1.0)
    return WantedChanges(trace, step=3, position_of=lambda updated: f"at {updated.wall}")


def as_it_is(rows: RowBatch) -> RowBatch:
    return rows


INT = ColumnType(kind=Kind.INT, source="bigint", bits=64)
TEXT = ColumnType(kind=Kind.STRING, source="text")


@pytest.fixture
def rows() -> RowBatch:
    made = [
        Row(op=op, after={"id": number, "note": "secret"}, updated=Timestamp(10 + number))
        for number, op in enumerate([Op.INSERT, Op.UPDATE, Op.UPDATE, Op.SCAN])
    ]
    return make_rows({"id": INT, "note": TEXT}, made, primary_key=["id"])


def test_a_key_is_found_in_its_table_and_no_more_often_than_was_asked_for(rows: RowBatch) -> None:
    search = wanted(
        TraceRequest(number=1, table="public.orders", key="[2]", most=5),
        TraceRequest(number=2, table="orders", key=None, most=3),
        TraceRequest(number=3, table="public.other", key="[2]", most=5),
    )
    found = search.found_in(rows, as_it_is)
    assert [(change.key, change.traces) for change in found] == [("[0]", (2,)), ("[1]", (2,)), ("[2]", (1, 2))]
    assert found[2].position == "at 12"
    assert "secret" not in repr(found)
    again = search.found_in(rows, as_it_is)
    assert [(change.key, change.traces) for change in again] == [("[2]", (1,))]


def test_a_change_that_no_sink_gets_says_why(rows: RowBatch) -> None:
    followed = FollowedChanges()
    followed.add(wanted(TraceRequest(number=1, table=None, key=None, most=9)).found_in(rows, as_it_is))
    followed.reached("emitted", rows.slice(0, 2))
    letter = DeadLetter(table="shop.public.orders", key="[1]", updated=Timestamp(11), stage="sink", error="secret")
    delivered, refused, left_out, _ = followed.flushed([letter])
    assert list(delivered.moments) == ["planned", "read", "emitted", "acknowledged"]
    assert (refused.dead_letter, "acknowledged" in refused.moments) == ("sink", False)
    assert (delivered.left_out, refused.left_out, left_out.left_out) == (False, False, True)


def test_the_changes_of_a_key_in_a_huge_transaction_are_told_apart() -> None:
    """Each is from another batch of it: only the logical parts of their timestamps differ, not their position."""
    made = [Row(op=Op.UPDATE, after={"id": 1}, updated=Timestamp(10, logical)) for logical in range(2)]
    batches = [make_rows({"id": INT}, [row], primary_key=["id"]) for row in made]

    def ids() -> list[str]:
        search = wanted(TraceRequest(number=1, table="orders", key="[1]", most=9))
        return [change.identity for rows in batches for change in search.found_in(rows, as_it_is)]

    assert len(set(ids())) == 2
    assert ids() == ids(), "the step is repeated"


def test_a_failure_of_a_trace_fails_no_slice_and_ends_what_is_traced_there(
    rows: RowBatch, caplog: pytest.LogCaptureFixture
) -> None:
    requests = (TraceRequest(number=1, table=None, key=None, most=9),)
    for broken in (lambda _: 1 / 0, lambda _: b"no text"):
        search = WantedChanges(StepTrace(requests=requests, planned=1.0), step=3, position_of=broken)  # type: ignore[arg-type]
        assert search.found_in(rows, as_it_is) == []
        assert search.found_in(rows, as_it_is) == []
    assert [record.getMessage().rpartition("without it: ")[2] for record in caplog.records] == [
        "ZeroDivisionError: division by zero",
        "ContractError: rangefeed broke its contract: position_of() returned bytes",
    ]
    followed = FollowedChanges()
    followed.add(wanted(*requests).found_in(rows, as_it_is))
    followed.rows_in(rows)[0][1].acknowledged(offset=b"no JSON")
    assert followed.so_far() == []
    assert followed.rows_in(rows) == []
    assert followed.flushed([]) == ()


def test_that_a_newer_attempt_took_over_ends_the_slice_also_in_a_trace(rows: RowBatch) -> None:
    def fenced(_: RowBatch) -> RowBatch:
        raise FencedError("a newer attempt took over")

    with pytest.raises(FencedError):
        wanted().found_in(rows, fenced)


@pytest.mark.parametrize(
    ("kind", "asked", "text"),
    [
        (Kind.INT, "[42]", "[42]"),
        (Kind.DECIMAL, "[1.50]", '["1.50"]'),
        (Kind.FLOAT, "[1.50]", "[1.5]"),
        (Kind.STRING, '["é\\""]', '["é\\""]'),
        (Kind.UUID, '["6f9619ff-8b86-d011-b42d-00c04fc964ff"]', '["6f9619ff-8b86-d011-b42d-00c04fc964ff"]'),
        (Kind.TIMESTAMPTZ, '["2024-01-01T00:00:00Z"]', '["2024-01-01T00:00:00+00:00"]'),
        (Kind.INT, "[1, 2]", None),
        (Kind.INT, '["42"]', None),
        (Kind.INT, "[4.5]", None),
        (Kind.INT, "[true]", None),
        (Kind.INT, f"[{2**70}]", None),
        (Kind.FLOAT, f"[{10**400}]", None),
        (Kind.FLOAT, "[1e400]", None),
        (Kind.FLOAT, "[true]", None),
        (Kind.UUID, "[[]]", None),
        (Kind.STRING, '["\\\\xff"]', '["\\\\xff"]'),
        (Kind.TIMESTAMPTZ, '["soon"]', None),
        (Kind.TIMESTAMPTZ, '["infinity"]', '["infinity"]'),
    ],
)
def test_a_key_is_recognized_as_messages_have_it(kind: Kind, asked: str, text: str | None) -> None:
    bits = 64 if kind in (Kind.INT, Kind.FLOAT) else None
    column = Column(name="id", type=ColumnType(kind=kind, source="", bits=bits))
    schema = TableSchema(name=TableName("d", "s", "t"), version=1, columns=(column,), primary_key=("id",))
    assert key_text(schema, asked) == text
