"""Topics and message batches."""

import pyarrow as pa
import pytest

from cdc_core import MessageBatch, RowBatch, TableName, TopicNames

NAME = TableName("shop", "public", "orders")


@pytest.mark.parametrize(
    ("topics", "topic"),
    [
        (TopicNames(), "orders"),
        (TopicNames(full_table_name=True), "shop.public.orders"),
        (TopicNames(prefix="cdc_"), "cdc_orders"),
        (TopicNames(prefix="cdc_", full_table_name=True), "cdc_shop.public.orders"),
    ],
)
def test_topics_are_a_prefix_and_the_name_of_the_table(topics: TopicNames, topic: str) -> None:
    assert topics.of(NAME) == topic


def test_a_batch_has_a_length_and_a_size() -> None:
    updated = RowBatch.timestamps(pa.array([1, 2], pa.int64()), pa.array([0, 0], pa.int32()))
    values = pa.array([b"a", None], pa.large_binary())
    batch = MessageBatch(topic="orders", key=values, value=values, updated=updated)
    assert len(batch) == 2
    assert batch.nbytes == 2 * values.nbytes
