"""What the list of tables says."""

from __future__ import annotations

import pytest
from cdc_rangefeed_postgres.selection import Selection, choice

from cdc_core import ConfigError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", ("public", "orders")),
        ("shop.orders", ("shop", "orders")),
        ("Shop.ORDERS", ("shop", "orders")),
        ('"Shop"."Or.ders"', ("Shop", "Or.ders")),
        ('"a""b".c', ('a"b', "c")),
        (" shop.orders ", ("shop", "orders")),
        ("db.shop.orders", ("shop", "orders")),
        ("ŻÓŁW.STRAßE_İ", ("ŻÓŁw", "straße_İ")),
    ],
)
def test_table_names_are_read_as_in_sql(text: str, name: tuple[str, str]) -> None:
    assert Selection.parse([text]).names == (name,)


def test_a_dot_in_a_name_does_not_make_two_tables_one() -> None:
    selection = Selection.parse(['"a.b".c', 'a."b.c"'])
    assert selection.names == (("a.b", "c"), ("a", "b.c"))
    assert [name for name in ('"a.b".c', "a.b.c", "a.b", '"a.b.c"') if selection.lists(name)] == ['"a.b".c', "a.b.c"]
    matching = Selection.parse(['"a.b".*', '!"a.b"."c.d"'])
    assert [name for name in ('"a.b".c', "a.b.c", '"a.b".c.d') if matching.wants(name)] == ['"a.b".c']
    assert choice({'a."b.c"': True, '"a.b".c': False}, '"a.b".c') is False


def test_an_empty_list_of_tables_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no table is listed\. List at least one table"):
        Selection.parse([])


@pytest.mark.parametrize(
    ("pattern", "wanted", "unwanted"),
    [
        ("public.*", ["public.t", "public.a b", "public.x.y"], ["publics.t", "other.t"]),
        ("order_*", ["public.order_", "public.order_2024"], ["public.orders", "public.orderx1", "sales.order_1"]),
        ("sales.t?", ["sales.t1", "sales.tü"], ["sales.t", "sales.t12"]),
        ("*.orders", ["a.orders", "b.orders"], ["a.order"]),
        ("Sales.ORDER*", ["sales.orders"], ["Sales.ORDERS"]),
        ('"Sales".*', ["Sales.orders"], ["sales.orders"]),
        ('"a*".b*', ["a*.bc"], ["ab.bc"]),
        ("a%b*", ["public.a%bc"], ["public.axbc"]),
        (r"a\*", [r"public.a\b"], ["public.ab"]),
    ],
)
def test_a_pattern_has_wildcards_outside_of_quotes(pattern: str, wanted: list[str], unwanted: list[str]) -> None:
    selection = Selection.parse([pattern])
    assert selection.names == ()
    assert [name for name in [*wanted, *unwanted] if selection.wants(name)] == wanted


def test_exclusions_apply_to_patterns_and_not_to_listed_names() -> None:
    selection = Selection.parse(["public.*", "tmp_kept", "!tmp_*", '!public."T"'])
    assert selection.wants("public.t")
    assert not selection.wants("public.T")
    assert not selection.wants("public.tmp_1")
    assert selection.wants("public.tmp_kept")


def test_an_exclusion_without_a_pattern_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'!public\.u' excludes nothing, because no pattern is listed"):
        Selection.parse(["public.t", "!public.u"])


def test_what_was_chosen_for_a_name_comes_before_what_was_chosen_for_a_pattern() -> None:
    chosen = {"public.t": True, "public.*": False, "Log_*": True, "!public.x": True}
    found = {name: choice(chosen, name) for name in ("public.t", "public.x", "public.log_1", "other.t")}
    assert found == {"public.t": True, "public.x": False, "public.log_1": True, "other.t": None}


def test_a_table_may_be_named_with_the_database_of_the_source() -> None:
    selection = Selection.parse(['"Db".public.t', "public.u", '"Db".sales.*', '!"Db".sales.x'])
    assert [name for name in ("public.t", "public.u", "sales.y", "sales.x") if selection.wants(name)] == [
        "public.t",
        "public.u",
        "sales.y",
    ]
    selection.require_database("Db")
    with pytest.raises(ConfigError) as refused:
        selection.require_database("db")
    assert str(refused.value) == (
        "'\"Db\".public.t' names a table in database Db, but the source is database db. List tables of the"
        " source, or correct the source's URI"
    )
    with pytest.raises(ConfigError, match=r"table public\.t is listed twice"):
        Selection.parse(["t", "db.public.t"])
