"""Names, versions and parts of the key space of several sources."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core import Column, ColumnType, Frontier, Kind, RangefeedContext, Rescan, Span, TableName, TableSchema
from cdc_core.errors import ConfigError
from cdc_core.shards.names import Names, common_databases, differences
from cdc_core.shards.shard import shard_feed_id, shard_span, shards_of
from cdc_core.timestamp import Timestamp

TEXT = ColumnType(kind=Kind.STRING, source="text")
CONTEXT = RangefeedContext(changefeed="t", feed_id="0123456789ab", uri="", tables=("t",), options=None, parallelism=3)
SHARDS = shards_of(CONTEXT, ["x://u:secret@a/d", "x://b/d", "x://c/d"])


def schema(database: str, table: str = "t", version: int = 1, column: str = "note") -> TableSchema:
    return TableSchema(
        name=TableName(database, "public", table),
        version=version,
        columns=(Column(name=column, type=TEXT),),
        primary_key=(column,),
    )


@given(st.integers(1, 1024))
def test_the_parts_of_all_shards_are_the_whole_table(count: int) -> None:
    frontier = Frontier([Span("d.s.t")])
    for index in range(count - 1):
        frontier.forward(shard_span("d.s.t", index, count), Timestamp(5))
        assert not frontier.high_water
    frontier.forward(shard_span("d.s.t", count - 1, count), Timestamp(5))
    assert list(frontier) == [(Span("d.s.t"), Timestamp(5))]


@given(st.binary(max_size=4), st.binary(max_size=4), st.integers(0, 2), st.integers(0, 2))
def test_spans_of_two_shards_never_overlap_and_those_of_one_keep_their_order(
    start: bytes, other: bytes, index: int, second: int
) -> None:
    left, right = (SHARDS[i].span(Span("t", key), table="t") for i, key in ((index, start), (second, other)))
    within = shard_span("t", index, 3)
    assert not left.minus(within)
    assert (left.overlap(right) is not None) == (index == second)
    if index == second:
        assert (start < other) == (left.start < right.start)


def test_no_version_of_a_table_is_one_of_another_source() -> None:
    names = [Names(index=index, count=3, databases={}) for index in range(3)]
    versions = [[each.schema(schema("d", version=version)).version for version in range(1, 50)] for each in names]
    assert all(sorted(found) == found for found in versions)
    assert len({version for found in versions for version in found}) == 3 * 49


def test_tables_are_called_as_those_of_the_first_source() -> None:
    databases = common_databases([schema("shop0")], [schema("shop1")], {})
    names = Names(index=1, count=2, databases=databases)
    assert names.schema(schema("shop1")).name.full == "shop0.public.t"
    assert names.table("shop1.public.t") == "shop0.public.t"
    assert names.table("shop10.public.t") == "shop10.public.t"
    assert names.rescan(Rescan(table="shop0.public.t")).table == "shop1.public.t"
    assert names.rescan(Rescan(table=None)).table is None


def test_one_database_cannot_have_the_names_of_two() -> None:
    first = [schema("a", "t"), schema("b", "u")]
    with pytest.raises(
        ConfigError,
        match=r"table public\.u is in database x, but the first source has the "
        r"tables of that database partly in a and partly in b",
    ):
        common_databases(first, [schema("x", "t"), schema("x", "u")], {})


def test_differences_name_the_sources_the_table_and_the_column() -> None:
    same = [schema("d")]
    nullable = dataclasses.replace(same[0], columns=(dataclasses.replace(same[0].columns[0], nullable=False),))
    assert differences(SHARDS, [same, [nullable], [schema("e")]]) == []
    found = differences(SHARDS, [same, [], [schema("d", column="text")]])
    assert found == [
        "source x://b/d has no table public.t, but x://a/d has",
        "table public.t has column note of type text at source x://a/d, but no column note at x://c/d",
        "table public.t has no column text at source x://a/d, but column text of type text at x://c/d",
        "table public.t has the key note at source x://a/d, but the key text at x://c/d",
    ]


def test_each_shard_has_an_identity_of_its_own_and_a_share_of_the_slices() -> None:
    identities = {shard.context.feed_id for shard in SHARDS} | {CONTEXT.feed_id}
    assert len(identities) == 4
    assert all(len(each) == 12 and int(each, 16) for each in identities)
    assert shard_feed_id("", 0) == ""  # before the changefeed has one
    assert [shard.context.parallelism for shard in SHARDS] == [1, 1, 1]
    assert [shard.place for shard in SHARDS] == ["x://a/d", "x://b/d", "x://c/d"]
