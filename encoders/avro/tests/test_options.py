from __future__ import annotations

from pathlib import Path

import pytest
from cdc_encoder_avro.options import AvroOptions

from cdc_core import OptionError
from cdc_core.options import describe, parse_options

_BAR = r"\|"
README = Path(__file__).parents[1] / "README.md"


def test_the_options_table_of_the_readme_is_the_generated_one() -> None:
    rows = [
        f"| `{row.name}` | {row.type.replace('|', _BAR)} | {row.default} | {row.doc} |" for row in describe(AvroOptions)
    ]
    table = "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *rows])
    text = README.read_text(encoding="utf-8")
    assert f"<!-- options: begin -->\n{table}\n<!-- options: end -->" in text


def test_an_unknown_option_is_refused_with_a_proposal() -> None:
    with pytest.raises(OptionError, match="did you mean 'avro_codec'"):
        parse_options(AvroOptions, {"avro_codecs": "null"}, owner="encoder 'avro'")
