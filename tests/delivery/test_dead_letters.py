"""A dead letter holds its row twice: as JSON for people, and exactly, to be sent again."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from cdc_encoder_json.decoder import JsonDecoder
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.table_rows import Row, make_rows

from cdc_core import ColumnType, EncoderContext, Envelope, Kind, Op, RowBatch, Timestamp
from cdc_core.config.changefeed import dead_letter_table
from cdc_core.delivery.dead_letters import BadRow, dead_letter_batch, dead_letter_schema, row_of

TYPES = {
    "id": ColumnType(kind=Kind.INT, source="bigint", bits=64),
    "price": ColumnType(kind=Kind.DECIMAL, source="numeric"),
    "doc": ColumnType(kind=Kind.JSON, source="jsonb"),
}
CONTEXT = EncoderContext(changefeed="shop", envelope=Envelope(), options=JsonOptions())


@pytest.fixture
def rows() -> RowBatch:
    seven = {"id": 7, "price": "NaN", "doc": '{"a": [1]}'}
    return make_rows(
        TYPES,
        [
            Row(op=Op.UPDATE, after=seven, before={**seven, "price": "1.0"}, updated=Timestamp(5, 1)),
            Row(op=Op.DELETE, before=seven, updated=Timestamp(6)),
        ],
        primary_key=["id"],
        diff=True,
        version=3,
    )


def test_a_dead_letter_comes_back_from_json_with_its_row_exactly_as_it_was(rows: RowBatch) -> None:
    bad = [BadRow(row=rows.slice(index, 1), stage="sink", reason="no\n room") for index in range(2)]
    letters = dead_letter_batch("shop", bad)
    assert letters.schema == dead_letter_schema("shop")
    assert letters.schema.name == dead_letter_table("shop")
    messages = JsonEncoder(CONTEXT).encode(letters, topic="shop_dead_letters")
    for index in range(2):
        key, value = messages.key[index].as_py(), messages.value[index].as_py()
        decoded = JsonDecoder(CONTEXT).message(letters.schema, key, value)
        assert decoded.after is not None
        assert decoded.after["error"] == "no room"
        assert decoded.after["schema_version"] == 3
        assert decoded.key is not None
        assert decoded.key[0] == "shop.public.orders"
        back = row_of(decoded.after)
        assert back.schema == rows.schema
        assert back.batch.equals(rows.batch.slice(index, 1))


def test_people_see_the_row_as_it_is_and_a_deleted_one_as_it_was(rows: RowBatch) -> None:
    bad = [BadRow(row=rows.slice(index, 1), stage="encode", reason="") for index in range(2)]
    shown = dead_letter_batch("shop", bad).column("after").to_pylist()
    assert [letter["row"] for letter in shown] == ['{"id": 7, "price": "NaN", "doc": {"a": [1]}}'] * 2
    assert [letter["op"] for letter in shown] == ["update", "delete"]
    assert [letter["updated"] for letter in shown] == ["5.0000000001", "6.0000000000"]
    assert [letter["key"] for letter in shown] == ["[7]", "[7]"]


def test_people_see_no_column_whose_value_is_unavailable() -> None:
    change = Row(op=Op.UPDATE, after={"id": 7, "price": None, "doc": None}, unavailable=("doc",))
    row = make_rows(TYPES, [change], primary_key=["id"])
    [letter] = dead_letter_batch("shop", [BadRow(row=row, stage="sink", reason="no")]).column("after").to_pylist()
    assert letter["row"] == '{"id": 7, "price": null}'
    assert row_of(letter).column("unavailable").to_pylist() == [["doc"]]


def test_the_same_rows_give_the_same_dead_letters(rows: RowBatch) -> None:
    bad = [BadRow(row=rows.slice(0, 1), stage="encode", reason="no")]
    assert dead_letter_batch("shop", bad).batch.equals(dead_letter_batch("shop", bad).batch)


def test_a_dead_letter_takes_little_more_room_than_its_row(rows: RowBatch) -> None:
    wide = RowBatch(schema=rows.schema, batch=pa.concat_batches([rows.batch] * 10_000))
    letters = dead_letter_batch("shop", [BadRow(row=wide.slice(9, 1), stage="encode", reason="no")])
    assert letters.nbytes < 3000


def test_a_very_long_error_is_cut() -> None:
    shown = BadRow(row=None, stage="sink", reason="x" * 10_000).shown_reason  # type: ignore[arg-type]
    assert len(shown) == 4000
    assert shown.endswith("…")


def test_an_error_that_stores_cannot_keep_is_shown_without_what_they_refuse() -> None:
    shown = BadRow(row=None, stage="sink", reason="a\0b \x1b[1m \ud800").shown_reason  # type: ignore[arg-type]
    assert shown == "a\ufffdb \ufffd[1m \ufffd"


def test_a_row_with_text_that_is_not_utf_8_can_be_a_dead_letter() -> None:
    types = {name: ColumnType(kind=kind, source="x") for name, kind in (("id", Kind.STRING), ("doc", Kind.JSON))}
    good = make_rows(types, [Row(op=Op.UPDATE, after={"id": "k", "doc": "1"})], primary_key=["id"])
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"k\xff\\")])
    row = RowBatch.of(
        good.schema,
        op=good.column("op"),
        updated=good.column("updated"),
        key=RowBatch.struct(good.schema.key_type, [broken]),
        after=RowBatch.struct(good.schema.after_type, [broken, broken]),
    )
    bad = BadRow(row=row, stage="sink", reason="no")
    [letter] = dead_letter_batch("shop", [bad]).column("after").to_pylist()
    shown = "k\\xff\\"
    assert json.loads(letter["row"]) == {"id": shown, "doc": shown}
    assert json.loads(letter["key"]) == [shown]
    assert row_of(letter).column("key").field("id")[0].as_buffer().to_pybytes() == b"k\xff\\"
    assert shown.replace("\\", "\\\\") in str(bad)


@pytest.mark.parametrize("letter", [{}, {"payload": None}, {"payload": "?"}, {"payload": "AAAA"}], ids=str)
def test_what_is_no_dead_letter_is_refused(letter: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a dead letter"):
        row_of(letter)
