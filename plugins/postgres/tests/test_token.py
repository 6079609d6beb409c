from __future__ import annotations

import json

import pytest
from cdc_rangefeed_postgres.filtered import PastFilter
from cdc_rangefeed_postgres.token import Layout, Part, PostgresToken, Scan, Snapshot, TableState, intent, is_intent

from cdc_core import Timestamp

A = Part(table="public.a", oid=10, filenode=11, blocks=100)
B = Part(table="public.b", oid=20, filenode=21, blocks=50)
SCAN = Scan(
    parts=(A, B), total=150, round=3, snapshot=Snapshot(id="00000003-0000001B-1", at=Timestamp(5), lsn=0x1_0000_00FF)
)
STATES = {
    "public.a": TableState(oid=10, key=("id",), version=1, shape="6ba402a9c822d1c5"),
    "public.b": TableState(oid=20, key=("x", "y"), version=2, shape="00a402a9c822d1c5", leaves=(1, 2)),
}
LAYOUT = Layout(columns="aaaabbbb", altered="c", files=(11,), key=("x",), key_ids=(16400,), past_names="0002aaaa")


@pytest.mark.parametrize("scan", [None, SCAN])
@pytest.mark.parametrize("clock", [None, Timestamp(1795237786278235999)])
def test_a_token_survives_json_and_is_small(scan: Scan | None, clock: Timestamp | None) -> None:
    token = PostgresToken(lsn=255, clock=clock, tables=STATES, catalog="af5c541854a70527", settled=7, scan=scan)
    text = json.dumps(token.to_json())
    assert PostgresToken.from_json(json.loads(text)) == token
    assert len(text) < 700


def test_a_token_survives_json_that_was_sorted() -> None:
    tables = {"public.b": STATES["public.b"], "public.a": STATES["public.a"]}
    token = PostgresToken(lsn=255, tables=tables, catalog="", settled=7, scan=SCAN)
    assert PostgresToken.from_json(json.loads(json.dumps(token.to_json(), sort_keys=True))) == token


def test_a_layout_survives_json_and_an_older_one_has_the_key_of_the_rows() -> None:
    state = TableState(oid=10, key=("id",), version=1, shape="6", layout=LAYOUT)
    value = state.to_json()
    assert TableState.from_json(json.loads(json.dumps(value))) == state
    assert state.present_key == ("x",)
    older = TableState.from_json(value | {"layout": value["layout"][:3]})
    assert older.layout is not None
    assert (older.present_key, older.layout.key_ids) == (("id",), ())


def test_names_of_columns_are_forgotten_when_the_rows_are_read_whole() -> None:
    state = TableState(oid=10, key=("id",), version=1, shape="6", layout=LAYOUT)
    token = PostgresToken(lsn=1, tables={"public.a": state, "public.b": state}, catalog="", settled=0)
    tables = token.scanning({"public.a"}, None).tables
    assert [len(tables[name].to_json()["layout"]) for name in tables] == [5, 8]


def test_a_past_filter_survives_json_and_an_older_token_has_none() -> None:
    past = PastFilter(where=('"id" > 10',), until=0x1_0000_00FF)
    state = TableState(oid=10, key=("id",), version=1, shape="6", past_filter=past)
    value = state.to_json()
    assert TableState.from_json(json.loads(json.dumps(value))) == state
    del value["past_filter"]
    assert TableState.from_json(value).past_filter is None


def test_only_an_intent_is_an_intent() -> None:
    assert is_intent(intent("x"))
    assert not is_intent(PostgresToken(lsn=1, tables={}, catalog="", settled=0).to_json())


def test_taking_from_a_scan_moves_through_its_parts_in_order() -> None:
    first = SCAN.without(0, 60)
    assert first is not None
    assert (first.parts, first.block, first.done) == ((A, B), 60, 60)
    second = first.without(1, 10)
    assert second is not None
    assert (second.parts, second.block, second.done) == ((B,), 10, 110)
    assert second.without(1, 0) is None
    assert second.without(0, 50) is None
