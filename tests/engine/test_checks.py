"""What is refused before a changefeed runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.engine import counter_feed

from cdc_core import Changefeed, ConfigError, TableName, TableSchema, Timestamp
from cdc_core.config.resolve import resolve
from cdc_core.engine.checks import check_sink, check_time_range


def test_tables_that_would_share_a_topic_are_refused_unless_they_get_full_names() -> None:
    schemas = [
        TableSchema(name=TableName("shop", schema, "orders"), version=1, columns=(), primary_key=())
        for schema in ("public", "eu")
    ]
    plugins = host(rangefeed(), encoder(), sink(destination="cdc_testing.components:SilentDestination"))
    tables = ("public.orders", "eu.orders")
    shared = Changefeed(name="orders", source="paper://desk/shop", tables=tables, sink="shelf://room")
    told = (
        "^tables public.orders and eu.orders would share the topic 'orders'; set the option full_table_name, or put the"
        " tables into separate changefeeds$"
    )
    with pytest.raises(ConfigError, match=told):
        check_sink(resolve(shared, plugins), schemas)
    check_sink(resolve(shared, plugins), schemas[:1])
    apart = Changefeed(
        name="orders", source="paper://desk/shop", tables=tables, sink="shelf://room", options={"full_table_name": True}
    )
    check_sink(resolve(apart, plugins), schemas)


@pytest.mark.parametrize("topic", ["all", "{schema}.{table}", "{table}"])
def test_tables_share_a_topic_where_its_pattern_has_no_placeholder(topic: str) -> None:
    schemas = [
        TableSchema(name=TableName("shop", schema, "orders"), version=1, columns=(), primary_key=())
        for schema in ("public", "eu")
    ]
    plugins = host(rangefeed(), encoder(), sink(destination="cdc_testing.components:SilentDestination"))
    tables = ("public.orders", "eu.orders")
    feed = Changefeed(
        name="orders", source="paper://desk/shop", tables=tables, sink="shelf://room", options={"topic": topic}
    )
    if topic != "{table}":
        check_sink(resolve(feed, plugins), schemas)
        return
    with pytest.raises(ConfigError, match=r"share the topic 'orders'; write \{schema\} into the option topic, or put"):
        check_sink(resolve(feed, plugins), schemas)


def test_a_changefeed_ends_after_its_start(tmp_path: Path) -> None:
    check_time_range(counter_feed(tmp_path, total=100, options={"end_time": str(Timestamp(102))}))
    told = r"^changefeed 't' would begin now, at 101\.0+, which is not earlier than its end_time, 101\.0+; set a later"
    with pytest.raises(ConfigError, match=told):
        check_time_range(counter_feed(tmp_path, total=100, options={"end_time": str(Timestamp(101))}))


def test_a_cursor_is_not_later_than_the_source(tmp_path: Path) -> None:
    check_time_range(counter_feed(tmp_path, total=100, options={"cursor": str(Timestamp(101))}))
    told = r"^changefeed 't': cursor 102\.0+ is later than the clock of the source, 101\.0+; set an earlier one"
    with pytest.raises(ConfigError, match=told):
        check_time_range(counter_feed(tmp_path, total=100, options={"cursor": str(Timestamp(102))}))


def test_with_a_cursor_the_end_may_have_passed(tmp_path: Path) -> None:
    options = {"cursor": str(Timestamp(10)), "end_time": str(Timestamp(20))}
    check_time_range(counter_feed(tmp_path, total=100, options=options))
