"""Topics and message batches."""

import re

import pyarrow as pa
import pytest

from cdc_core import MessageBatch, RowBatch, TableName, TopicNames
from cdc_core.messages import topic_placeholders

NAME = TableName("shop", "public", "orders")


@pytest.mark.parametrize(
    ("topics", "topic"),
    [
        (TopicNames(), "orders"),
        (TopicNames(full_table_name=True), "shop.public.orders"),
        (TopicNames(prefix="cdc_"), "cdc_orders"),
        (TopicNames(prefix="cdc_", full_table_name=True), "cdc_shop.public.orders"),
        (TopicNames(pattern="{table}"), "orders"),
        (TopicNames(pattern="{database}.{schema}.{table}.v1"), "shop.public.orders.v1"),
        (TopicNames(pattern="{schema}-{table}", prefix="eu-"), "eu-public-orders"),
        (TopicNames(pattern="{{{table}}}"), "{orders}"),
        (TopicNames(pattern="changes"), "changes"),
    ],
)
def test_topics_are_a_prefix_and_the_name_of_the_table_or_a_pattern(topics: TopicNames, topic: str) -> None:
    assert topics.of(NAME) == topic


def test_tables_share_a_topic_only_where_the_pattern_has_no_placeholder() -> None:
    assert TopicNames(pattern="all").shared
    assert not TopicNames(pattern="all-{schema}").shared
    assert not TopicNames().shared


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("{tabel}", "option 'topic' has the unknown placeholder {tabel}; use {database}, {schema} and {table}"),
        ("{}", "option 'topic' has the unknown placeholder {}; use {database}, {schema} and {table}"),
        ("{table.x}", "option 'topic' has the unknown placeholder {table.x}; use {database}, {schema} and {table}"),
        ("{table!r}", "option 'topic' has the unknown placeholder {table!r}; use {database}, {schema} and {table}"),
        ("{table:>9}", "option 'topic' has the unknown placeholder {table:>9}; use {database}, {schema} and {table}"),
        ("a{table", "option 'topic' is 'a{table', which has an unmatched brace; write {{ or }}"),
        ("a}", "option 'topic' is 'a}', which has an unmatched brace; write {{ or }}"),
    ],
)
def test_a_pattern_with_anything_else_in_braces_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        topic_placeholders(pattern)


def test_a_batch_has_a_length_and_a_size() -> None:
    updated = RowBatch.timestamps(pa.array([1, 2], pa.int64()), pa.array([0, 0], pa.int32()))
    values = pa.array([b"a", None], pa.large_binary())
    batch = MessageBatch(topic="orders", key=values, value=values, updated=updated)
    assert len(batch) == 2
    assert batch.nbytes == 2 * values.nbytes
