"""What is refused before a changefeed runs."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_encoder_json.encoder import JsonEncoder
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.engine import counter_feed
from cdc_testing.stored import DEFINITION

from cdc_core import Changefeed, Column, ColumnType, ConfigError, Kind, TableName, TableSchema, Timestamp
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine import checks
from cdc_core.engine.checks import check_encoder, check_sink, check_time_range
from cdc_core.engine.planned_queries import check_query
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.values import Progress

ORDERS = TableSchema(
    name=TableName("shop", "public", "orders"),
    version=1,
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, source="bigint", bits=64), nullable=False),
        Column(name="status", type=ColumnType(kind=Kind.STRING, source="text")),
    ),
    primary_key=("id",),
)


def orders(query: str, *, options: dict[str, Any]) -> ResolvedChangefeed:
    """Return a changefeed with *query* into Kafka."""
    feed = Changefeed(name="f", source="postgresql://h/shop", query=query, sink="kafka://b", options=options)
    return resolve(feed, PluginHost.load())


def check_topics(*tables: str, found: int | None = None, **options: Any) -> None:
    """Check a sink without an opinion with *tables*, or the first *found* of them."""
    plugins = host(rangefeed(), encoder(), sink(destination="cdc_testing.components:SilentDestination"))
    feed = Changefeed(name="f", source="paper://desk/shop", tables=tables, sink="shelf://room", options=options)
    parts = [[part.strip('"') for part in re.findall(r'"[^"]*"|[^."]+', table)] for table in tables[:found]]
    schemas = [TableSchema(name=TableName("shop", *each), version=1, columns=(), primary_key=()) for each in parts]
    check_sink(resolve(feed, plugins), schemas)


def test_tables_that_would_share_a_topic_are_refused_unless_they_get_full_names() -> None:
    told = (
        "^tables public.orders and eu.orders would share the topic 'orders'; set option full_table_name, or put the "
        "tables into separate changefeeds$"
    )
    with pytest.raises(ConfigError, match=told):
        check_topics("public.orders", "eu.orders")
    check_topics("public.orders", "eu.orders", found=1)
    check_topics("public.orders", "eu.orders", full_table_name=True)


@pytest.mark.parametrize("options", [{"full_table_name": True}, {"topic": "{schema}.{table}"}])
def test_tables_whose_parts_make_one_topic_are_refused_with_what_helps(options: dict[str, Any]) -> None:
    told = r'^tables "a\.b"\.c and a\.b\.c would share .*; set option topic to a pattern such as \{schema\}-\{table\}'
    with pytest.raises(ConfigError, match=told):
        check_topics('"a.b".c', 'a."b.c"', **options)
    check_topics('"a.b".c', 'a."b.c"', topic="{schema}-{table}")


@pytest.mark.parametrize("topic", ["all", "{schema}.{table}", "{table}"])
def test_tables_share_a_topic_where_its_pattern_has_no_placeholder(topic: str) -> None:
    if topic != "{table}":
        check_topics("public.orders", "eu.orders", topic=topic)
        return
    with pytest.raises(ConfigError, match=r"share the topic 'orders'; add \{schema\} to option topic, or put"):
        check_topics("public.orders", "eu.orders", topic=topic)


@pytest.mark.parametrize(
    ("query", "topic"),
    [
        ("SELECT id FROM orders", "p.orders"),
        ("SELECT id, concat('orders-', id) AS cdc_topic FROM orders", "p.cdc-check"),
    ],
)
def test_an_encoder_is_not_asked_about_a_topic_that_is_never_written(
    query: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(JsonEncoder, "check", lambda _, tables: asked.extend(topic for _, topic in tables))
    check_encoder(orders(query, options={"topic_prefix": "p."}), [ORDERS])
    assert asked == [topic]


@pytest.mark.parametrize(
    ("query", "refused"),
    [
        ("SELECT * FROM orders", None),
        ("SELECT id, upper(status) AS status FROM orders", None),
        ("SELECT cast(id AS string) AS id FROM orders", 8),
        ("SELECT status AS id FROM orders", 8),
    ],
)
@pytest.mark.parametrize("column", ["id", None])
def test_a_key_column_that_only_looks_like_the_primary_key_is_refused(
    query: str, refused: int | None, column: str | None
) -> None:
    feed = orders(query, options={"unordered": True, "key_column": column} if column else {})
    if refused is None or column is None:
        check_query(feed, [ORDERS])
        return
    told = rf"line 1, column {refused}: key_column = 'id': the query computes a new value under the name"
    with pytest.raises(ConfigError, match=told):
        check_query(feed, [ORDERS])


def test_a_changefeed_ends_after_its_start(tmp_path: Path) -> None:
    check_time_range(counter_feed(tmp_path, total=100, options={"end_time": str(Timestamp(102))}))
    ended = {"end_time": str(Timestamp(101)), "initial_scan": "no"}
    told = r"^changefeed 't' has no cursor, and its end_time, 101\.0+, is not later than the source's clock, 101\.0+;"
    with pytest.raises(ConfigError, match=told):
        check_time_range(counter_feed(tmp_path, total=100, options=ended))
    told = (
        r"^changefeed 't' would scan its tables now, at 101\.0+, which is not earlier than its end_time, 101\.0+; set"
    )
    for cursor in ({}, {"cursor": str(Timestamp(10))}):
        with pytest.raises(ConfigError, match=told):
            check_time_range(counter_feed(tmp_path, total=100, options={**ended, **cursor, "initial_scan": "yes"}))


def test_a_cursor_is_not_later_than_the_source(tmp_path: Path) -> None:
    check_time_range(counter_feed(tmp_path, total=100, options={"cursor": str(Timestamp(101))}))
    told = r"^changefeed 't': cursor 102\.0+ is later than the source's clock, 101\.0+; set an earlier cursor"
    with pytest.raises(ConfigError, match=told):
        check_time_range(counter_feed(tmp_path, total=100, options={"cursor": str(Timestamp(102))}))


def test_with_a_cursor_the_end_may_have_passed(tmp_path: Path) -> None:
    options = {"cursor": str(Timestamp(10)), "end_time": str(Timestamp(20)), "initial_scan": "no"}
    check_time_range(counter_feed(tmp_path, total=100, options=options))


@pytest.mark.parametrize(
    ("clock", "latest", "end"),
    [
        (Timestamp(9), Timestamp(5), Timestamp(9)),
        (Timestamp(9), Timestamp(9), Timestamp(9)),
        (Timestamp(4), Timestamp(9, 7), Timestamp(10)),
    ],
)
def test_a_run_with_once_delivers_what_was_committed_after_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Timestamp, latest: Timestamp, end: Timestamp
) -> None:
    store = ProgressStore(store_url(tmp_path))
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), Progress(token={}, latest=latest))
    monkeypatch.setattr(checks, "source_clock", lambda _: clock)
    feed: Any = SimpleNamespace(name="orders")
    assert checks.end_of_once(feed, store) == end
    store.close()
