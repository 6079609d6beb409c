from __future__ import annotations

import psycopg
from cdc_rangefeed_postgres.lsn import flushed_and_clock, lsn_text, parse_lsn
from cdc_testing.postgres import Sql
from cdc_testing.runs import eventually


def test_lsns_are_written_as_postgresql_does() -> None:
    assert lsn_text(0x16_B374_D848) == "16/B374D848"
    assert parse_lsn("16/B374D848") == 0x16_B374_D848
    assert parse_lsn(lsn_text(2**64 - 1)) == 2**64 - 1


def test_a_log_that_is_durable_up_to_the_middle_of_a_record_is_decoded_at_once(database: str, sql: Sql) -> None:
    """A scan of rows that are new leaves such a log: it writes, and commits nothing."""
    sql.execute("SELECT pg_create_logical_replication_slot('middle', 'pgoutput', true)")
    before, _ = flushed_and_clock(sql)
    with psycopg.connect(database) as scan:
        scan.execute("SELECT pg_logical_emit_message(false, 'scan', repeat('-', 20000))")
        scan.rollback()
    eventually("whole pages are durable", lambda: flushed_and_clock(sql)[0] >= before + 8192)
    end, _ = flushed_and_clock(sql)
    sql.execute("SET statement_timeout = '5s'")  # the server would wait for another program's commit
    sql.execute(
        "SELECT FROM pg_logical_slot_peek_binary_changes('middle', %s::text::pg_lsn, NULL, 'proto_version', '1',"
        " 'publication_names', 'none')",
        [lsn_text(end)],
    )
