"""A definition as names and texts means the same definition, and every name has one meaning."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.config.flat import flat, unflattened

PLAIN = {"source": "x://", "tables": "t", "sink": "y://"}
NAMES = st.sampled_from(
    ["resolved", "topic", "name", "source", "tables", "table", "table.x", "spark.x", "options", "options.x", "master"]
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="$"), max_size=9)


@given(
    st.lists(TEXTS.filter(bool), min_size=1, max_size=4),
    st.dictionaries(NAMES, TEXTS, max_size=5),
    st.dictionaries(TEXTS.filter(bool), st.fixed_dictionaries({"where": TEXTS}), max_size=2),
    st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=2),
)
def test_a_definition_comes_back_as_it_was(
    tables: list[str], options: dict[str, str], sections: dict[str, Any], functions: dict[str, str]
) -> None:
    written: dict[str, Any] = {"source": ["a://", "b://"], "tables": tables, "sink": "c://", "query": "SELECT 1"}
    written |= {"options": options, "spark": {"master": "local[1]", "spark.x.y": "1"}}
    written |= {"table": sections} if sections else {}
    written |= {"functions": functions} if functions else {}
    found = unflattened(flat(written))
    assert found.problems == {}
    assert found.written == written
    assert flat(found.written) == flat(written)


def test_values_of_a_file_become_texts_that_mean_the_same() -> None:
    options = {"resolved": True, "max_step_rows": 7, "kafka": {"linger.ms": 5, "acks": "all"}, "list": ["a", "b"]}
    assert flat({"source": "x://", "tables": ["t"], "sink": "y://", "options": {**options, "empty": {}}}) == {
        **PLAIN,
        "resolved": "true",
        "max_step_rows": "7",
        "kafka.linger.ms": "5",
        "kafka.acks": "all",
        "list": "a,b",
        "empty": "{}",
    }


@pytest.mark.parametrize(
    ("more", "key", "problem"),
    [
        ({"table.t": "columns"}, "table.t", "must be JSON"),
        ({"table.t": "[]"}, "table.t", "must be a JSON object"),
        ({"table": "{}"}, "table", "write table.NAME"),
        ({"functions.": "x"}, "functions.", "write functions.NAME"),
        ({"tables": '["a", 1]'}, "tables", "must be a list of strings"),
        ({"options.": "x"}, "options.", "the name of the option is missing"),
        ({"resolved": "1s", "options.resolved": "2s"}, "options.resolved", "is set twice"),
        ({"pin": "${file:secrets/pin}"}, "pin", "is a relative path"),
        ({"source": " "}, "source", "Missing required configuration"),
    ],
)
def test_what_is_wrong_is_said_of_its_name(more: dict[str, str], key: str, problem: str) -> None:
    found = unflattened({**PLAIN, **more})
    assert found.problems.keys() == {key}
    assert problem in found.problems[key]


def test_a_file_of_a_home_directory_or_with_a_whole_path_is_accepted() -> None:
    assert unflattened({**PLAIN, "pin": "${file:~/pin} ${file:/run/pin} $${file:pin}"}).problems == {}
