from __future__ import annotations

import re

import pytest
from cdc_sink_kafka.topics import Topics, escaped
from cdc_testing.kafka_rows import table_name as table

from cdc_core import ConfigError, TableName, TopicNames


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("orders", "orders"),
        ("a-b_c.d", "a-b_c.d"),
        ("my table", "my_u0020_table"),
        ("\N{SNOWMAN}", "_u2603_"),
        ("\N{PILE OF POO}", "_u1f4a9_"),
        ("_u2603_", "_u005f_u2603_"),
        ("_u00_u2603_", "_u005f_u00_u2603_"),
        ("a_u", "a_u"),
    ],
)
def test_names_are_escaped_as_in_cockroachdb(name: str, topic: str) -> None:
    assert escaped(name) == topic
    assert re.fullmatch(r"[A-Za-z0-9._-]+", topic)


def test_prefix_and_full_name_are_part_of_the_topic() -> None:
    assert Topics(TopicNames(full_table_name=True, prefix="eu ")).of(table("orders")) == "eu_u0020_shop.public.orders"


def test_a_topic_name_is_for_all_tables() -> None:
    topics = Topics(TopicNames(prefix="eu."), name="every thing")
    assert topics.all([table("a"), table("b")]) == ["eu.every_u0020_thing"]
    topics.check([table("a"), table("b")])


def test_a_pattern_makes_topics_of_the_parts_of_a_name() -> None:
    topics = Topics(TopicNames(pattern="{schema}.{table}"))
    topics.check([table("orders"), table("orders", "archive")])
    assert topics.all([table("orders"), table("orders", "archive")]) == ["archive.orders", "public.orders"]
    together = Topics(TopicNames(pattern="changes"))
    together.check([table("a"), table("b")])
    assert together.all([table("a"), table("b")]) == ["changes"]


@pytest.mark.parametrize(
    ("topics", "tables", "sentence"),
    [
        (
            Topics(TopicNames(pattern="cdc.{table}")),
            [table("orders"), table("orders", "archive")],
            "tables archive.orders and public.orders would both go to topic 'cdc.orders'; add {schema} to "
            "option topic, use a separate changefeed for each table, or set topic_name to send all tables to one topic",
        ),
        (
            Topics(TopicNames(pattern="{table}"), name="all"),
            [table("orders")],
            "sink 'kafka': options 'topic' and 'topic_name' cannot be used together; remove topic_name",
        ),
        (
            Topics(TopicNames()),
            [table("orders"), table("orders", "archive")],
            "tables archive.orders and public.orders would both go to topic 'orders'; set option full_table_name, use"
            " a separate changefeed for each table, or set topic_name to send all tables to one topic",
        ),
        (
            Topics(TopicNames()),
            [table("o" * 250)],
            f"table public.{'o' * 250} would go to a topic whose name has 250 characters, but Kafka allows 249; "
            "shorten topic_prefix, remove full_table_name, or set topic_name",
        ),
        (
            Topics(TopicNames()),
            [table("..")],
            "table public... would go to topic '..', which Kafka does not allow; set topic_prefix",
        ),
        (
            Topics(TopicNames(), name=""),
            [table("a")],
            "sink 'kafka': option 'topic_name' is empty; name a topic, or remove the option",
        ),
    ],
)
def test_names_that_kafka_does_not_allow_are_refused_in_one_sentence(
    topics: Topics, tables: list[TableName], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        topics.check(tables)
    assert str(refused.value) == sentence
