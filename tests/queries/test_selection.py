"""Sections of tables: what they select, what is refused of them, and what they leave of a row."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.local_engine import resolved_feed

from cdc_core import Changefeed, Column, ColumnType, Kind, Op, RowBatch, TableName, TableSchema, unavailable_column
from cdc_core.config.alteration import Alteration, remaining_sections
from cdc_core.config.identity import require_same_source
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError, OptionError
from cdc_core.plugins.host import PluginHost
from cdc_core.queries.bound_query import BoundQuery, delivered_rows
from cdc_core.queries.selection import Selection
from cdc_core.queries.table_queries import TableQueries

TEXT = ColumnType(kind=Kind.STRING, source="text")
COLUMNS = {
    "id": ColumnType(kind=Kind.INT, source="integer", bits=32),
    "email": TEXT,
    'Odd "name"': TEXT,
    "flag": ColumnType(kind=Kind.BOOL, source="boolean"),
}
KEY = "a-key-of-many-characters"
ODD = 'Odd "name"'
SOURCE = "postgresql://u@h/d"


def table(name: str = "users", key: tuple[str, ...] = ("id",), **more: ColumnType) -> TableSchema:
    columns = tuple(Column(name=each, type=type_) for each, type_ in {**COLUMNS, **more}.items())
    return TableSchema(name=TableName("db", "public", name), version=3, columns=columns, primary_key=key)


def bound(section: Any, schema: TableSchema | None = None, *, diff: bool = False) -> BoundQuery:
    return Selection.parse("public.users", section).bind(schema or table(), number=0, diff=diff)


def names(query: BoundQuery) -> list[str]:
    return [output.name for output in query.outputs]


def test_columns_are_included_in_their_order_or_excluded() -> None:
    assert names(bound({"columns": {"include": ["flag", ODD]}})) == ["flag", ODD]
    assert names(bound({"columns": {"exclude": [ODD]}})) == ["id", "email", "flag"]
    assert names(bound({"where": "flag"})) == list(COLUMNS)


def test_a_new_column_is_delivered_under_exclude_alone() -> None:
    wider = table(added=TEXT)
    assert "added" in names(bound({"columns": {"exclude": ["flag"]}}, wider))
    assert "added" not in names(bound({"columns": {"include": ["id"]}}, wider))


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("flag", True),
        ("id > 3", False),
        ("id > 3 AND flag", True),
        ("event_op() <> 'delete'", False),
        ("cdc_prev.email = 'e'", True),
        ("id > 3 AND cdc_prev IS NOT NULL", True),
        ("cdc_prev.id > 3", True),
    ],
)
def test_a_condition_is_for_deletes_only_on_the_key(where: str, passes: bool) -> None:
    assert bound({"where": where}).deletes_pass is passes


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({}, "table public.users: it is empty"),
        ({"column": {}}, "unknown key 'column'; did you mean 'columns'"),
        ({"columns": ["id"]}, "'columns' must be { include"),
        ({"columns": {"include": ["id"], "exclude": ["flag"]}}, "'columns' must be { include"),
        ({"columns": {"include": []}}, "columns.include must be a list"),
        ({"columns": {"include": ["id", "id"]}}, "columns.include lists 'id' twice"),
        ({"columns": {"include": ["emial"]}}, "has no column 'emial'; did you mean 'email'"),
        ({"columns": {"exclude": ["emial"]}}, "has no column 'emial'; did you mean 'email'"),
        ({"columns": {"exclude": list(COLUMNS)}}, "no column would be left"),
        ({"where": "flga"}, "query, line 1, column"),
        ({"where": "flag; SELECT 1"}, "text follows the end"),
        ({"where": "flag ORDER BY id"}, "a query cannot have ORDER"),
        ({"where": "id IN (SELECT 1)"}, "a query cannot have a subquery"),
        ({"where": " "}, "'where' must be a condition"),
        ({"mask": {"emial": "hash"}}, "mask.emial: table public.users has no column 'emial'; did you mean 'email'"),
        ({"mask": {"email": "hsah"}}, "mask.email has no meaning"),
        ({"mask": {"flag": "hash"}}, "mask.flag: 'hash' cannot mask values of the type boolean"),
        ({"mask": {"id": "redact"}}, "mask.id: redact would give different rows the same key"),
        (
            {"mask": {"id": "redact"}, "columns": {"exclude": ["id"]}},
            "mask.id: redact would give different rows the same",
        ),
        ({"mask": {"email": "hash"}, "columns": {"exclude": ["email"]}}, "mask.email: the column is not delivered"),
        ({"mask": {"email": "hash"}, "columns": {"include": ["id"]}}, "mask.email: the column is not delivered"),
    ],
)
def test_what_is_wrong_is_said_with_the_table(section: Any, reason: str) -> None:
    with pytest.raises(OptionError) as refused:
        bound(section)
    assert str(refused.value).startswith("table public.users: ")
    assert reason in str(refused.value)


def test_a_section_is_its_own_json_and_can_be_shown() -> None:
    section = {
        "columns": {"exclude": ["flag"]},
        "where": "id > 3\n AND flag",
        "mask": {"email": "hash", ODD: {"truncate": 2}},
    }
    found = Selection.parse("users", section)
    assert found.to_json() == section
    shown = 'all columns but flag; where id > 3 AND flag; masked email (hash), Odd "name" (truncate 2)'
    assert found.shown == shown
    query = found.bind(table(), number=2, diff=True)
    assert pickle.loads(pickle.dumps(query)) == query


def test_a_section_is_that_of_one_watched_table() -> None:
    queries = TableQueries.of(None, {"users": {"where": "flag"}})
    queries.require_tables([table(), table("other")])
    assert queries.selects(table().name)
    assert not queries.selects(table("other").name)
    with pytest.raises(ConfigError, match=r"table users has a section, but is not watched.* public\.user"):
        queries.require_tables([table("user")])
    twice = TableName("db", "else", "users")
    with pytest.raises(ConfigError, match=r"could belong to else\.users and public\.users"):
        queries.require_tables([table(), TableSchema(name=twice, version=1, columns=(), primary_key=())])
    with pytest.raises(ConfigError, match="has two sections"):
        TableQueries.of(None, {"users": {"where": "flag"}, "public.users": {"where": "flag"}}).bind(table())


def test_a_section_restricts_what_a_scan_reads() -> None:
    section = {"columns": {"include": ["id"]}, "where": "email = 'a' AND length(email) > 0"}
    queries = pickle.loads(pickle.dumps(TableQueries.of(None, {"users": section})))
    restriction = queries.restriction_of(table())
    assert restriction.columns == {"id", "email"}
    assert [comparison.column for comparison in restriction.comparisons] == ["email"]
    assert queries.restriction_of(table("other")).columns is None


def test_a_section_restricts_changes_only_if_its_condition_is_for_deletes() -> None:
    of_key = TableQueries.of(None, {"users": {"where": "id > 5"}}).restriction_of(table())
    assert [comparison.column for comparison in of_key.of_changes] == ["id"]
    of_others = TableQueries.of(None, {"users": {"where": "id > 5 AND flag"}}).restriction_of(table())
    assert [comparison.column for comparison in of_others.comparisons] == ["id", "flag"]
    assert of_others.of_changes == ()


def rows(schema: TableSchema) -> RowBatch:
    image = {"id": 1, "email": "e", ODD: "abc", "flag": True}
    return RowBatch.of(
        schema,
        op=pa.array([Op.UPDATE, Op.DELETE], pa.uint8()),
        updated=RowBatch.timestamps(pa.array([5, 6], pa.int64()), pa.array([0, 0], pa.int32())),
        key=pa.array([{"id": 1, "email": "e"}] * 2, schema.key_type),
        after=pa.array([image | {ODD: None}, None], schema.after_type),
        before=pa.array([image, image], schema.after_type),
        unavailable=unavailable_column({"email": pa.array([False, False]).to_numpy(zero_copy_only=False)}),
    )


def test_key_before_and_after_are_masked_alike() -> None:
    schema = table(key=("email", "id"))
    section = {"columns": {"exclude": ["id"]}, "mask": {"email": "hash", ODD: {"truncate": 2}, "flag": "redact"}}
    query = bound(section, schema, diff=True)
    found = delivered_rows(rows(schema), query, key=KEY.encode())
    (hashed, _), (key, _) = (found.column(name).to_pylist() for name in ("after", "key"))
    assert len(hashed["email"]) == 64
    assert key == {"email": hashed["email"], "id": 1}
    assert found.column("after").to_pylist() == [{"email": hashed["email"], ODD: None, "flag": None}, None]
    assert found.column("before").to_pylist() == [{"email": hashed["email"], ODD: "ab", "flag": None}] * 2
    assert (found.schema.version, found.schema.primary_key) == (3, ("email", "id"))
    assert "before" not in delivered_rows(rows(schema), bound(section, schema), key=b"").batch.schema.names


@pytest.mark.parametrize("columns", [{"exclude": ["email"]}, {"include": ["flag"]}])
def test_a_key_column_that_is_not_delivered_is_masked_in_the_key(columns: Any) -> None:
    schema = table(key=("email", "id"))
    query = bound({"columns": columns, "mask": {"email": "hash"}}, schema)
    plain, found = rows(schema), delivered_rows(rows(schema), query, key=KEY.encode())
    assert "email" not in found.schema.after_type.names
    assert [key["email"] for key in plain.column("key").to_pylist()] == ["e", "e"]
    assert [len(key["email"]) for key in found.column("key").to_pylist()] == [64, 64]


def test_no_advice_leaves_a_key_in_plain_sight() -> None:
    with pytest.raises(OptionError, match=r"'hash' cannot mask .* boolean; every message shows the key") as told:
        bound({"mask": {"flag": "hash"}}, table(key=("flag",)))
    assert "redact" not in str(told.value)
    assert "exclude" not in str(told.value)


HASHED = {"public.users": {"mask": {"email": "hash"}}}


def feed(
    sections: Any = HASHED, tables: tuple[str, ...] = ("public.users", "items"), **options: Any
) -> ResolvedChangefeed:
    changefeed = Changefeed(
        name="c", source="postgresql://u@h/d", tables=tables, sink="file:///out", table=sections, options=options
    )
    return resolve(changefeed, PluginHost.load())


def test_a_hash_needs_a_key_and_a_key_needs_a_hash() -> None:
    with pytest.raises(OptionError, match=r"table public\.users: mask 'hash' needs a key"):
        feed()
    with pytest.raises(OptionError, match="option 'mask_key' has no effect"):
        feed({"items": {"where": "id > 1"}}, mask_key=KEY)
    with pytest.raises(OptionError, match=r"'mask_key' must have at least 16 characters") as short:
        feed(mask_key="short-key")
    assert "short-key" not in str(short.value)


def test_the_key_is_a_secret_that_the_store_does_not_keep() -> None:
    resolved = feed(mask_key=KEY)
    assert KEY in resolved.secrets()
    assert KEY not in repr(resolved) + str(resolved.definition())
    assert resolved.stored["literal_secrets"] == ["option 'mask_key'"]
    changefeed = Changefeed(name="c", source="a://b", tables=("t",), sink="c://d", options={"mask_key": KEY})
    assert KEY not in repr(changefeed)
    known = pickle.loads(pickle.dumps(resolved))
    assert (known.queries(), known.mask_key) == (resolved.queries(), KEY.encode())


def test_the_envelope_stays_and_diff_is_allowed() -> None:
    resolved = feed({"items": {"where": "id > 1"}}, diff=True)
    assert resolved.envelope().name == "wrapped"
    assert resolved.queries().diff
    assert not resolved_feed("postgresql://u@h/d", "file:///out", "t").queries().exist
    assert Parts(feed({"items": {"where": "cdc_prev.id > 1"}})).rangefeed_context().diff


def test_a_query_and_sections_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="has both a query and a section of table t"):
        Changefeed(name="c", source="a://b", sink="c://d", query="SELECT * FROM t", table={"t": {"where": "true"}})


def test_a_section_of_a_table_that_stays_cannot_be_changed() -> None:
    known = feed({"public.users": {"where": "id > 1"}}).definition()
    require_same_source("c", known, known, changes_tables=True)
    others: list[Any] = [
        {},
        {"public.users": {"where": "id > 2"}},
        {"public.users": {"where": "id > 1"}, "items": {"where": "true"}},
    ]
    for other in others:
        with pytest.raises(ConfigError, match=r"was started with .*section of table .*which cannot be changed"):
            require_same_source("c", known, feed(other).definition(), changes_tables=True)
    wanted = feed({"new": {"where": "true"}}, tables=("items", "new")).definition()
    require_same_source("c", known, wanted, changes_tables=True)
    patterns = feed({"public.users": {"where": "true"}}, tables=("public.*",)).definition()
    without = feed({}, tables=("public.*",)).definition()
    excluded = feed({}, tables=("public.*", "!public.users")).definition()
    with pytest.raises(ConfigError, match="cannot be changed"):
        require_same_source("c", patterns, without, changes_tables=True)
    require_same_source("c", patterns, excluded, changes_tables=True)


@pytest.mark.parametrize(
    ("section", "tables", "wanted"),
    [
        ('public."my-table"', ["public.my-table"], ["public.my-table"]),
        ('"2024_orders"', ["2024_orders"], ["2024_orders"]),
        ("public.users", ["a form of another source"], ["a form of another source"]),
        ('"Users"', ["Users"], ["Users"]),
        ("users", ["public.*", "audit.*"], ["public.*", "audit.*", "!audit.users"]),
        ("users", ["public.*", "audit.*"], ["public.*", "audit.*", "!users"]),
        ("audit.users", ["audit.*"], ["audit.*", "!users"]),
        ("users", ["*.users"], ["*.users", "!public.users"]),
        ("public.users", ["public.users", "public.*"], ["public.users", "public.*", "!public.users"]),
        ('public."a*"', ['public."a*"', "public.*"], ['public."a*"', "public.*", '!public."a*"']),
    ],
)
def test_a_section_cannot_go_while_its_table_may_be_watched(section: str, tables: list[str], wanted: list[str]) -> None:
    before: dict[str, Any] = {"source": SOURCE, "selections": {section: {"where": "a"}}, "tables": tables}
    now = {"source": SOURCE, "tables": wanted}
    assert remaining_sections(before["selections"], tables, wanted) == before["selections"]
    for known, other in ((before, now), (now, before)):
        with pytest.raises(ConfigError, match="which cannot be changed"):
            require_same_source("c", known, other, changes_tables=True)


@pytest.mark.parametrize(
    ("section", "tables", "wanted"),
    [
        ("public.users", ["public.users", "public.my-table"], ["public.my-table"]),
        ("public.users", ["public.*"], ["public.*", "!public.users"]),
        ("users", ["public.*", "audit.it*"], ["public.*", "audit.it*", "!public.users"]),
        ("users", ["u*"], ["u*", "!users"]),
        ("sales.users", ["sales.users", "users"], ["users"]),
        ("users", ["sales.users", "users"], ["sales.users"]),
        ("sales.users", ["sales.users", "public.*"], ["public.*"]),
        ("sales.users", ["sales.*", "public.*"], ["public.*"]),
    ],
)
def test_a_section_goes_with_its_table(section: str, tables: list[str], wanted: list[str]) -> None:
    sections = {section: {"where": "a"}}
    assert remaining_sections(sections, tables, wanted) == {}
    before = {"source": SOURCE, "selections": sections, "tables": tables}
    require_same_source("c", before, {"source": SOURCE, "tables": wanted}, changes_tables=True)


@pytest.mark.parametrize("change", [{"drop": ["public.users"]}, {"add": ["!public.users"]}])
def test_a_table_that_is_gone_from_the_database_can_be_left_out_with_its_section(change: dict[str, list[str]]) -> None:
    sections, tables = {"public.users": {"where": "id > 1"}}, ["public.*"]
    begun = feed(sections, tables=tuple(tables))
    with pytest.raises(
        ConfigError, match=r"dropped, remove it with `cdc alter` and --drop public\.users with its schema"
    ):
        begun.queries().require_tables([table("items")])
    alteration = Alteration.parse(**{"add": [], "drop": [], "assignments": [], "unset": [], **change})
    changed = alteration.applied({"tables": tables, "table": sections}, tables, "public")
    now = feed(changed["table"], tables=tuple(changed["tables"]))
    require_same_source("c", begun.definition(), now.definition(), changes_tables=True)
    now.queries().require_tables([table("items")])


def test_a_dropped_table_takes_its_section_with_it() -> None:
    written = {"tables": ["users", "items"], "table": {"public.users": {"where": "a"}, "items": {"where": "b"}}}
    alteration = Alteration.parse(add=["new"], drop=["users"], assignments=[], unset=[])
    changed = alteration.applied(written, ["users", "items"], "public")
    assert changed["tables"] == ["items", "new"]
    assert changed["table"] == {"items": {"where": "b"}}
    with pytest.raises(ConfigError, match=r"'table\.items\.where' cannot be altered; create another job"):
        Alteration.parse(add=[], drop=[], assignments=["table.items.where=true"], unset=[])


@pytest.mark.parametrize(
    ("query", "section", "computes"),
    [
        ("SELECT *, id AS n FROM users", {}, False),
        ("SELECT upper(name) AS n FROM users", {}, True),
        ("SELECT id FROM users WHERE id > 5", {}, True),
        (None, {"columns": {"include": ["id"]}}, False),
        (None, {"where": "id > 5"}, True),
    ],
)
def test_spark_computes_nothing_where_columns_are_passed_on(query: str | None, section: Any, computes: bool) -> None:
    assert TableQueries.of(query, {"users": section} if section else {}).compute is computes
