"""The reference components keep every promise, so that each of their saboteurs breaks its own promise only."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from cdc_conformance.functions import FunctionConformance
from cdc_conformance.promises import promises_of
from cdc_conformance.reference.partitions import DirectoryDisturbance, Line, Partitions
from cdc_conformance.sabotage import encoders, functions, histories, rangefeeds, sinks
from cdc_conformance.sabotage.broken_sinks.tampering import is_locked
from cdc_testing.query_functions import FUNCTIONS

from cdc_core import RetryableSinkError

LINE = Line(key=b"\n", value=b"\x00\n", updated="1.0000000000")


class TestSink(sinks.SUITE):
    """Every promise except those of a history."""


class TestArchive(histories.SUITE):
    """Every promise of a history."""


class TestEncoder(encoders.SUITE):
    pass


class TestRangefeed(rangefeeds.SUITE):
    pass


def test_every_promise_of_a_rangefeed_is_explained() -> None:
    for name in promises_of(rangefeeds.SUITE):
        assert len(inspect.getdoc(getattr(rangefeeds.SUITE, name)) or "") > 60, name


class TestFunction(functions.SUITE):
    pass


class TestTextsAndNumbers(FunctionConformance):
    function = next(function for function in FUNCTIONS if function.name == "joined")


class TestRowsThatFail(FunctionConformance):
    function = next(function for function in FUNCTIONS if function.name == "whole_number")


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, count=1, patience_s=1)
    tombstone = Line(key=b"k", value=None, updated=None)
    partitions.append("a/b", 0, [LINE, tombstone])
    assert list(partitions.read("a/b", 0)) == [LINE, tombstone]
    assert list(partitions.read("nothing", 0)) == []


def test_an_incomplete_line_is_not_read_and_the_next_write_removes_it(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, count=1, patience_s=1)
    partitions.append("t", 0, [LINE])
    with partitions.path("t", 0).open("ab") as file:
        file.write(LINE.to_bytes()[:9])
    assert list(partitions.read("t", 0)) == [LINE]
    partitions.append("t", 0, [LINE])
    assert list(partitions.read("t", 0)) == [LINE, LINE]


def test_a_write_waits_only_for_so_long(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, count=1, patience_s=0)
    with DirectoryDisturbance(tmp_path).stalled():
        assert is_locked(partitions)
        with pytest.raises(RetryableSinkError, match="accepted no message for 0 s"):
            partitions.append("t", 0, [LINE])
    assert not is_locked(partitions)


def test_a_destination_returns_in_other_files(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path / "out", count=1, patience_s=1)
    partitions.append("t", 0, [LINE])
    before = partitions.path("t", 0).stat().st_ino
    with DirectoryDisturbance(tmp_path / "out").broken(), pytest.raises(RetryableSinkError, match="cannot use "):
        partitions.append("t", 0, [LINE])
    assert partitions.path("t", 0).stat().st_ino != before
    assert list(partitions.read("t", 0)) == [LINE]
