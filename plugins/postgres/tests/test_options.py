from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cdc_rangefeed_postgres.options import PostgresOptions

from cdc_core import OptionError
from cdc_core.options import describe, parse_options

README = Path(__file__).parents[1] / "README.md"
OWNER = "source 'postgres'"


def test_the_table_in_the_readme_agrees_with_the_options() -> None:
    rows = ["| option | type | default | meaning |", "|---|---|---|---|"]
    cells = [(f"`{row.name}`", row.type.replace("|", "\\|"), row.default, row.doc) for row in describe(PostgresOptions)]
    rows += [f"| {' | '.join(row)} |" for row in cells]
    begin, end = "<!-- options: begin -->\n", "\n<!-- options: end -->"
    text = README.read_text(encoding="utf-8")
    assert text[text.index(begin) + len(begin) : text.index(end)] == "\n".join(rows)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("scan_round", "0s", ": scan_round must be greater than zero"),
        ("snapshot_wait", "0", ": snapshot_wait must be greater than zero"),
        ("lock_timeout", "0", ": lock_timeout must be greater than zero"),
        ("scan_chunk_size", "0", ": scan_chunk_size must be greater than zero"),
        ("fetch_size", "1KB", ": fetch_size must be between 64KB and 64MB"),
        ("logical_decoding_work_mem", "63KB", ": logical_decoding_work_mem must be between 64KB and 2047GB"),
        (
            "slot_name",
            "Shop-slot",
            ": slot_name must have 1 to 63 characters, only lowercase letters, digits and underscores",
        ),
        (
            "endpoints",
            [{"uri": "postgresql://h"}],
            ": endpoint 1 must have a uri and a locality, as in "
            '{uri = "postgresql://…", locality = "region=eu-west-1"}',
        ),
        (
            "endpoints",
            '[{"uri": "postgresql://h", "locality": "a=b"}, {"uri": "mysql://u:pw@h", "locality": "a=b"}]',
            ": the uri of endpoint 2 must begin with postgresql://",
        ),
        (
            "endpoints",
            [{"uri": "postgresql://h", "locality": "eu"}],
            ": endpoint 1: 'eu' is not a locality; write each tier as name=value with letters, "
            "digits and . _ - only, such as region=eu-west-1,zone=a",
        ),
        ("publication_name", "x" * 64, ": publication_name must have 1 to 63 bytes"),
        ("scan_rounds", "1s", " has no option 'scan_rounds'; did you mean 'scan_round'?"),
    ],
)
def test_an_impossible_value_is_refused(name: str, value: Any, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(PostgresOptions, {name: value}, owner=OWNER)
    assert str(caught.value) == OWNER + text
