"""A definition as the text of a file, and back."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.config.toml_file import definition_in, toml_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\"\\\n\r\t'#\x7f"), max_size=12)
PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
VALUE = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
TABLE = st.dictionaries(TEXT, VALUE, min_size=1, max_size=3)
WRITTEN = st.fixed_dictionaries(
    {"options": TABLE, "spark": st.dictionaries(TEXT.map("spark.{}".format), TEXT, min_size=1, max_size=2)},
    optional={
        "source": TEXT | st.lists(TEXT, min_size=1, max_size=2),
        "tables": st.lists(TEXT, max_size=3),
        "query": TEXT,
        "sink": TEXT,
        "functions": st.dictionaries(TEXT, TEXT, min_size=1, max_size=2),
        "table": st.dictionaries(TEXT, TABLE, min_size=1, max_size=2),
    },
)


@given(name=TEXT, written=WRITTEN)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read_back(name: str, written: dict[str, Any]) -> None:
    assert definition_in(toml_text(name, written), origin="the text") == (name, written)


def test_a_file_is_written_as_people_write_it() -> None:
    written = {
        "source": "postgresql://h/d",
        "query": "SELECT a\nFROM t",
        "options": {"updated": True, "max_attempts": 3, "resolved": "10s", "left_out": None},
        "table": {"public.t": {"where": "a > 0"}},
    }
    assert (
        toml_text("shop", written)
        == """\
[changefeed.shop]
source = "postgresql://h/d"
query = \"\"\"
SELECT a
FROM t\"\"\"

[changefeed.shop.options]
updated = true
max_attempts = 3
resolved = "10s"

[changefeed.shop.table."public.t"]
where = "a > 0"
"""
    )


def test_what_is_no_text_does_not_stop_the_rest() -> None:
    assert definition_in(toml_text("a", {"sink": "x\ud800"}), origin="the text")[1]["sink"] == "x?"
