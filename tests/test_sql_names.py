"""Names of tables in SQL text."""

from __future__ import annotations

import pytest

from cdc_core.config.listed_tables import topics_of
from cdc_core.queries.selection import Selection
from cdc_core.queries.table_queries import TableQueries
from cdc_core.schema import TableName
from cdc_core.sql_names import fold, meant_tables, name_parts

DOTTED = TableName("shop", "a.b", "c")
NAMES = [
    DOTTED,
    TableName("shop", "a", "b.c"),
    TableName("shop", "public", "Orders"),
    TableName("shop", "eu", "Orders"),
]


@pytest.mark.parametrize(("text", "folded"), [("Orders", "orders"), ("ŻÓŁW", "ŻÓŁw"), ("İ", "İ")])
def test_only_a_to_z_are_folded(text: str, folded: str) -> None:
    assert fold(text) == folded
    assert name_parts(f'{text}."{text}"') == [(folded, False), (text, True)]
    selection = Selection(table=text, where="id = 1")
    assert selection.name == (folded,)
    assert TableQueries(selections=(selection,)).selects(TableName("shop", "public", folded))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('"a.b".c', [0]),
        ('a."b.c"', [1]),
        ("a.b.c", [1]),
        ('shop."a.b".c', [0]),
        ("b.c", [1]),
        ("c", [0]),
        ("Orders", [2, 3]),
        ('"Orders"', [2, 3]),
        ('eu."Orders"', [3]),
        ("eu.Orders", [3]),
        ("orders", []),
        ('"a.b.c"', []),
    ],
)
def test_a_table_is_found_as_messages_and_lists_write_it(text: str, meant: list[int]) -> None:
    assert meant_tables(text, NAMES) == [NAMES[number] for number in meant]


def test_topics_are_those_of_the_parts_of_names() -> None:
    definition = {
        "source": "postgresql://h/shop",
        "sink": "kafka://b?topic_prefix=x_",
        "tables": ['"a.b".c', 'a."b*c"', "Orders"],
        "options": {"topic": "{schema}-{table}"},
    }
    assert topics_of(definition, "public") == ["x_a.b-c", "x_a-b*c", "x_public-orders"]
    assert topics_of({**definition, "options": {"topic_name": "all"}}, "public") == ["x_all"]
    assert topics_of({**definition, "tables": ["a.b*"]}, "public") is None
