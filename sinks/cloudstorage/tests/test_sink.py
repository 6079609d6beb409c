from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from cdc_testing.cloud_rig import START, CloudRig, rows, slice_of

from cdc_core import ConfigError, TableName, Timestamp

LIMIT_S = 120.0


def until(condition: Callable[[], bool]) -> bool:
    """Return whether *condition* becomes true: finished files are uploaded in the background."""
    deadline = time.monotonic() + LIMIT_S
    while not condition() and time.monotonic() < deadline:
        pass
    return condition()


def test_flushed_rows_are_in_a_file_named_after_their_slice(cloud: CloudRig) -> None:
    sink = cloud.sink()
    sink.begin(slice_of(step=3, index=2))
    sink.emit(rows([1, 2], version=10))
    sink.emit(rows([3], version=10))
    assert cloud.visible() == []
    flushed = sink.flush()
    (path,) = cloud.visible()
    assert path == (
        "2020-04-02/202004022058072107140000000000000-0000000000000007-0000000003-00002-00000000-orders-a.lines"
    )
    body = (cloud.root / path).read_bytes()
    assert [json.loads(line)[:3] for line in body.splitlines()] == [["orders", key, 10] for key in (1, 2, 3)]
    assert (flushed.messages, flushed.bytes, flushed.files) == (3, len(body), 1)
    assert [entry["path"] for entry in flushed.delivered] == [path]


def test_a_full_file_is_visible_before_flush(cloud: CloudRig) -> None:
    sink = cloud.sink({"file_size": "200"})
    sink.begin(slice_of())
    for key in range(20):
        sink.emit(rows([key]))
    assert until(lambda: len(cloud.data_files()) > 2)
    flushed = sink.flush()
    assert [file.counter for file in cloud.data_files()] == list(range(flushed.files))
    assert flushed.messages == 20


def test_a_newer_schema_version_closes_the_file_of_the_older_version(cloud: CloudRig) -> None:
    sink = cloud.sink()
    sink.begin(slice_of())
    sink.emit(rows([1], version=1))
    sink.emit(rows([1], table="users", version=1))
    sink.emit(rows([2], version=2))
    assert until(lambda: [(file.topic, file.schema_version) for file in cloud.data_files()] == [("orders", 1)])
    sink.emit(rows([3], version=3))
    sink.flush()
    orders = [(file.counter, file.schema_version) for file in cloud.data_files() if file.topic == "orders"]
    assert orders == [(0, 1), (1, 2), (3, 3)]


def test_files_of_a_topic_become_visible_in_the_order_of_their_names(cloud: CloudRig) -> None:
    sink = cloud.sink({"file_size": "150"})
    sink.begin(slice_of())
    seen: list[str] = []
    for number in range(80):
        sink.emit(rows([number], version=1 + number // 30))
        new = sorted(set(cloud.visible()) - set(seen))
        assert not seen or not new or max(seen) < min(new)
        seen += new
    sink.flush()
    assert cloud.visible()[: len(seen)] == seen


def test_flush_publishes_in_the_order_of_first_rows(cloud: CloudRig) -> None:
    sink = cloud.sink()
    sink.begin(slice_of())
    for table in ("b", "a", "c", "a"):
        sink.emit(rows([1], table=table))
    sink.flush()
    assert [file.topic for file in cloud.data_files()] == ["b", "a", "c"]


def test_every_slice_counts_its_files_from_zero(cloud: CloudRig) -> None:
    sink = cloud.sink()
    for step in range(3):
        sink.begin(slice_of(step=step, lower=Timestamp(START.wall + step)))
        sink.emit(rows([1]))
        sink.flush()
    assert [(file.step, file.counter) for file in cloud.data_files()] == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("partition_format", "directory"), [("daily", "2020-04-02/"), ("hourly", "2020-04-02/20/"), ("flat", "")]
)
def test_files_and_resolved_files_are_in_the_partition_of_their_timestamp(
    cloud: CloudRig, partition_format: str, directory: str
) -> None:
    sink = cloud.sink({"partition_format": partition_format})
    sink.begin(slice_of())
    sink.emit(rows([1]))
    sink.flush()
    cloud.resolved_sink({"partition_format": partition_format}).emit_resolved(START)
    data, resolved = cloud.visible()
    assert data.startswith(f"{directory}{'202004022058072107140000000000000-'}")
    assert resolved == f"{directory}202004022058072107140000000000000.RESOLVED"


@pytest.mark.parametrize(
    ("prefix", "full", "topic"),
    [("", False, "orders"), ("eu-", False, "eu-orders"), ("eu/", True, "eu/shop.public.orders")],
)
def test_topics_have_the_prefix_and_the_full_name(cloud: CloudRig, prefix: str, full: bool, topic: str) -> None:
    sink = cloud.sink({"topic_prefix": prefix}, full_table_name=full)
    sink.begin(slice_of())
    sink.emit(rows([1]))
    sink.flush()
    assert [file.topic for file in cloud.data_files()] == [topic]
    assert json.loads((cloud.root / cloud.visible()[0]).read_text())[0] == topic
    table = TableName("shop", "public", "orders")
    assert cloud.destination({"topic_prefix": prefix}, full_table_name=full).topic(table) == topic


def test_a_resolved_file_has_the_payload_of_the_encoder_and_can_be_written_twice(cloud: CloudRig) -> None:
    sink = cloud.resolved_sink({"compression": "gzip"})
    sink.emit_resolved(START)
    once = cloud.visible(), (cloud.root / cloud.visible()[0]).read_bytes()
    sink.emit_resolved(START)
    cloud.resolved_sink().emit_resolved(START)
    assert (cloud.visible(), (cloud.root / cloud.visible()[0]).read_bytes()) == once
    assert once[1] == f'{{"resolved":"{START}"}}'.encode()


def test_the_memory_of_all_open_files_is_bounded(cloud: CloudRig) -> None:
    sink = cloud.sink({"file_size": "2KB"})
    sink.begin(slice_of())
    most = 0
    for number in range(600):
        sink.emit(rows([number], table=f"table{number % 50}"))
        most = max(most, sink.buffered_bytes)
    assert 4 * 2048 - 100 < most <= 4 * 2048
    assert sink.flush().messages == 600
    assert sink.buffered_bytes == 0
    assert [file.counter for file in cloud.data_files()] == list(range(len(cloud.data_files())))


def test_the_memory_of_all_open_compressors_is_bounded(cloud: CloudRig) -> None:
    sink = cloud.sink({"compression": "zstd"})
    sink.begin(slice_of())
    for number in range(40):
        sink.emit(rows([number], table=f"table{number}"))
    assert until(lambda: len(cloud.data_files()) >= 40 - 16)
    assert sink.flush().messages == 40


def test_two_tables_with_the_same_topic_are_refused(cloud: CloudRig) -> None:
    tables = (TableName("shop", "public", "orders"), TableName("shop", "eu", "orders"))
    with pytest.raises(ConfigError) as refused:
        cloud.destination(tables=tables).check()
    assert str(refused.value) == (
        "tables eu.orders and public.orders would share the topic 'orders'. Set option full_table_name, or put the"
        " tables into separate changefeeds"
    )
    cloud.destination(tables=tables, full_table_name=True).check()


def test_names_that_are_too_long_are_refused_by_check(cloud: CloudRig) -> None:
    tables = (TableName("d" * 63, "s" * 63, "t" * 63),)
    with pytest.raises(ConfigError) as refused:
        cloud.destination(tables=tables, full_table_name=True).check()
    assert str(refused.value) == (
        f"file names of topic '{tables[0].full}' would be 283 bytes long, but the sink allows 255. Shorten"
        " topic_prefix, or remove full_table_name"
    )
    cloud.destination(tables=tables).check()
