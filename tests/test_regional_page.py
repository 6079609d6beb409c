"""The examples on the page about regions run, and what arrives is what the page shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_encoder_json.options import JsonOptions
from cdc_testing.feeding import Feed, again, feed_of
from cdc_testing.pages import Page
from cdc_testing.postgres import Sql, table_of

from cdc_core import EncoderContext, Envelope, Op, RowBatch, TerminalRangefeedError

PAGE = Page("regional-by-row.md")
CREATE, MOVE, CONVERT = PAGE.blocks("sql")
BEFORE = """
CREATE TABLE vehicles (id uuid PRIMARY KEY, city text NOT NULL, type text NOT NULL);
INSERT INTO vehicles SELECT gen_random_uuid(), 'seattle', 'bike' FROM generate_series(1, 10);
CREATE TABLE users (id int PRIMARY KEY);
"""
KEYS = "SELECT region, id::text FROM vehicles"


def next_messages(feed: Feed) -> list[dict[str, Any]]:
    """Return the messages of the next step that has any, as the JSON encoder writes them."""
    context = EncoderContext(changefeed="c", envelope=Envelope(updated=True, key_in_value=True), options=JsonOptions())
    encoder = JsonEncoder(context)
    while True:
        planned = feed.plan()
        slices = planned[1] if planned is not None else ()
        rows = [item for slice_ in slices for item in feed.reader.read(slice_) if isinstance(item, RowBatch)]
        if rows:
            values = [value for batch in rows for value in encoder.encode(batch, topic="vehicles").value.to_pylist()]
            return [json.loads(value) for value in values]
        feed.step()


def without_time(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert len({message["updated"] for message in messages}) == 1
    return [{name: value for name, value in message.items() if name != "updated"} for message in messages]


def test_a_moved_row_is_a_delete_and_an_insert_with_one_timestamp(database: str, sql: Sql) -> None:
    sql.execute(CREATE)
    with feed_of(database, "vehicles") as feed:
        feed.start()
        feed.catch_up()
        sql.execute(MOVE)
        shown = [json.loads(line) for line in PAGE.blocks("json")[0].splitlines()]
        assert without_time(next_messages(feed)) == without_time(shown)
        feed.catch_up()
        assert (
            feed.rows("public.vehicles").keys() == table_of(sql, "SELECT region, id::text FROM vehicles", key=2).keys()
        )


def test_a_table_that_becomes_regional_is_read_anew_with_its_new_key(database: str, sql: Sql) -> None:
    sql.execute(BEFORE)
    with feed_of(database, "vehicles", "users") as feed:
        feed.start()
        feed.catch_up()
        with sql.transaction():
            sql.execute(CONVERT.replace("BEGIN;", "").replace("COMMIT;", ""))
        sql.execute(MOVE.replace("washington dc", "seattle"))
        with pytest.raises(TerminalRangefeedError) as ended:
            feed.catch_up()
        assert PAGE.blocks("text")[0].strip() in str(ended.value)
        with again(feed, database, "users") as without:
            without.catch_up()
            with again(without, database, "vehicles", "users") as anew:
                anew.catch_up()
                assert {change.op for change in anew.changes} == {Op.SCAN}
                assert {change.key for change in anew.changes} == table_of(sql, KEYS, key=2).keys()
