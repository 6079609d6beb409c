from __future__ import annotations

from cdc_rangefeed_postgres.lsn import lsn_text, parse_lsn


def test_lsns_are_written_as_postgresql_does() -> None:
    assert lsn_text(0x16_B374_D848) == "16/B374D848"
    assert parse_lsn("16/B374D848") == 0x16_B374_D848
    assert parse_lsn(lsn_text(2**64 - 1)) == 2**64 - 1
