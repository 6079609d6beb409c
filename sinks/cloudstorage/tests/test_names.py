from __future__ import annotations

import re
from typing import Any

import pytest
from cdc_sink_cloudstorage.names import (
    DataFile,
    PartitionFormat,
    ResolvedFile,
    escape_topic,
    parse_name,
    partition_of,
    timestamp_text,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core import Timestamp

FORMATS: tuple[PartitionFormat, ...] = ("daily", "hourly", "flat")
END_OF_9999 = 253_402_300_799_999_999_999

timestamps = st.builds(
    Timestamp,
    st.integers(0, END_OF_9999) | st.integers(1_585_861_087_000_000_000, 1_585_861_087_000_000_020),
    st.integers(0, 2**31 - 1) | st.integers(0, 2),
)
small_or_any = st.integers(0, 20)
topics = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.from_regex(
    r"[a-z]{0,2}(-[0-9a-f]{1,16}){1,3}(\.[a-z]{1,3})?", fullmatch=True
)
data_files = st.builds(
    DataFile,
    timestamp=timestamps,
    epoch=small_or_any | st.integers(0, 2**64 - 1),
    step=small_or_any | st.integers(0, 10**10 - 1),
    slice_index=small_or_any | st.integers(0, 99_999),
    counter=small_or_any | st.integers(0, 2**32 - 1),
    topic=topics,
    schema_version=st.integers(0, 2**32),
    extension=st.sampled_from([".ndjson", ".ndjson.gz", ".avro.zst", ".csv"]),
)


def sort_key(file: DataFile) -> tuple[Any, ...]:
    return file.timestamp, file.epoch, file.step, file.slice_index, file.counter


def example(**changes: Any) -> DataFile:
    fields: dict[str, Any] = {
        "timestamp": Timestamp(1_585_861_087_210_714_000, 3),
        "epoch": 0x56087568DBA1E6B8,
        "step": 12,
        "slice_index": 4,
        "counter": 255,
        "topic": "test_table",
        "schema_version": 26,
        "extension": ".ndjson",
    }
    return DataFile(**(fields | changes))


def test_a_data_file_has_the_documented_name() -> None:
    name = "202004022058072107140000000000003-56087568dba1e6b8-0000000012-00004-000000ff-test_table-1a.ndjson"
    assert example().name == name
    assert example().path("daily") == f"2020-04-02/{name}"
    assert example().path("hourly") == f"2020-04-02/20/{name}"
    assert example().path("flat") == name


def test_a_resolved_file_has_the_documented_name() -> None:
    resolved = ResolvedFile(timestamp=Timestamp(1_586_044_270_413_968_000))
    assert resolved.path("daily") == "2020-04-04/202004042351104139680000000000000.RESOLVED"


@given(data_files)
def test_cockroachdbs_own_pattern_finds_the_parts(file: DataFile) -> None:
    found = re.match(r"^\d{33}-(.+?)-(\d+)-(\d+)-([0-9a-fA-F]{8})-(.+?)-", file.name, re.DOTALL)
    assert found is not None
    assert int(found[1], 16) == file.epoch
    assert (int(found[2]), int(found[3]), int(found[4], 16)) == (file.step, file.slice_index, file.counter)


@given(data_files, st.sampled_from(FORMATS))
def test_parsing_the_path_of_a_data_file_gives_the_file(file: DataFile, partition_format: PartitionFormat) -> None:
    assert parse_name(file.path(partition_format)) == file


@given(timestamps, st.sampled_from(FORMATS))
def test_parsing_the_path_of_a_resolved_file_gives_the_file(
    timestamp: Timestamp, partition_format: PartitionFormat
) -> None:
    resolved = ResolvedFile(timestamp=timestamp)
    assert parse_name(resolved.path(partition_format)) == resolved


@settings(max_examples=40)
@given(st.lists(data_files, max_size=8), st.sampled_from(FORMATS))
def test_paths_sort_in_the_order_of_writing(files: list[DataFile], partition_format: PartitionFormat) -> None:
    by_path = sorted(files, key=lambda file: file.path(partition_format))
    assert [sort_key(file) for file in by_path] == sorted(map(sort_key, files))


@settings(max_examples=40)
@given(st.lists(data_files, max_size=8), timestamps, st.sampled_from(FORMATS))
def test_a_resolved_file_sorts_after_all_data_up_to_it_and_before_all_later_data(
    files: list[DataFile], timestamp: Timestamp, partition_format: PartitionFormat
) -> None:
    resolved = ResolvedFile(timestamp=timestamp).path(partition_format)
    for file in [*files, example(timestamp=timestamp)]:
        assert (file.path(partition_format) < resolved) == (file.timestamp <= timestamp)


@given(data_files)
def test_a_name_is_one_path_component_without_wildcards(file: DataFile) -> None:
    assert not set('/\\*?[]{}:"<>|#\0\n') & set(file.name)


@settings(max_examples=50)
@given(topics, topics)
def test_different_topics_have_different_names(one: str, other: str) -> None:
    assert (escape_topic(one) == escape_topic(other)) == (one == other)


@pytest.mark.parametrize(
    ("topic", "escaped"),
    [
        ("orders", "orders"),
        ("shop.public.order-items", "shop.public.order-items"),
        ("tbl+fam", "tbl+fam"),
        ("Größe 1", "Größe 1"),
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("../x", "..%2Fx"),
    ],
)
def test_only_special_characters_are_escaped(topic: str, escaped: str) -> None:
    assert escape_topic(topic) == escaped


@pytest.mark.parametrize(
    "path",
    [
        "",
        "README.md",
        "2020-04-02/",
        "202013022058072107140000000000003.RESOLVED",
        "20200402205807210714000000000000.RESOLVED",
        "202004022058072107140000000000003.RESOLVED.tmp",
        "202004022058072107140000000000003-56087568dba1e6b8-12-4-000000ff-test_table-1a.ndjson",
        "202004022058072107140000000000003-56087568dba1e6b8-0000000012-00004-000000ff-test_table-1a",
        ".inprogress/0123456789abcdef-0000000000000001-00.tmp",
    ],
)
def test_names_that_the_sink_does_not_write_are_not_parsed(path: str) -> None:
    assert parse_name(path) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 2**64},
        {"step": 10**10},
        {"slice_index": 100_000},
        {"counter": 2**32},
        {"counter": -1},
        {"topic": ""},
        {"schema_version": -1},
        {"extension": "ndjson"},
        {"extension": ".nd-json"},
        {"extension": ".a/b"},
    ],
)
def test_a_value_that_would_break_the_order_or_the_parser_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"file name|file extension"):
        example(**changes)


def test_a_time_after_the_year_9999_is_refused() -> None:
    assert timestamp_text(Timestamp(END_OF_9999)).startswith("99991231235959")
    with pytest.raises(ValueError, match="after the year 9999"):
        timestamp_text(Timestamp(END_OF_9999 + 1))


def test_partitions_begin_at_midnight_and_full_hours_utc() -> None:
    before, after = Timestamp(1_585_871_999_999_999_999), Timestamp(1_585_872_000_000_000_000)
    assert [partition_of(ts, "daily") for ts in (before, after)] == ["2020-04-02/", "2020-04-03/"]
    assert [partition_of(ts, "hourly") for ts in (before, after)] == ["2020-04-02/23/", "2020-04-03/00/"]
