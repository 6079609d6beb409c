"""The writer that the conformance kit uses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.writer import PostgresWriter
from cdc_testing.postgres import Sql

from cdc_core import SourceWriterContext


@pytest.fixture
def writer(database: str) -> Iterator[PostgresWriter]:
    writer = PostgresWriter(SourceWriterContext(uri=database, options=PostgresOptions()))
    yield writer
    writer.close()
    writer.close()


def test_puts_and_deletes_are_visible_after_the_commit(writer: PostgresWriter) -> None:
    writer.create_table("t")
    first, second = writer.begin(), writer.begin()
    first.put("t", {"id": 1, "n": 1, "note": "a"})
    second.put("t", {"id": 2, "n": 1})
    second.delete("t", 3)
    assert writer.rows("t") == {}
    first.commit()
    second.rollback()
    again = writer.begin()
    again.put("t", {"id": 1, "n": 2})
    again.commit()
    assert writer.rows("t") == {1: {"id": 1, "n": 2, "note": "a"}}
    last = writer.begin()
    last.delete("t", 1)
    last.commit()
    assert writer.rows("public.t") == {}


def test_tables_log_old_rows_and_columns_can_be_added_and_dropped(writer: PostgresWriter, sql: Sql) -> None:
    writer.create_table('"A table"')
    assert sql.execute("SELECT relreplident::text FROM pg_class WHERE relname = 'A table'").fetchone() == ("f",)
    writer.add_column('"A table"', "extra")
    transaction = writer.begin()
    transaction.put('"A table"', {"id": 1, "n": 1, "extra": "x"})
    transaction.commit()
    writer.drop_column('"A table"', "extra")
    assert writer.rows('"A table"') == {1: {"id": 1, "n": 1, "note": None}}
    writer.create_table('"A table"')
    assert writer.rows('"A table"') == {}
    writer.drop_table('"A table"')
    writer.drop_table('"A table"')
