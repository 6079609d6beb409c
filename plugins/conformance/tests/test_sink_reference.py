"""The reference sink and the archive keep every promise between them, and their destinations are real."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_conformance.promises import promises_of
from cdc_conformance.reference.disturbance import DirectoryDisturbance
from cdc_conformance.reference.partitions import Line, Partitions
from cdc_conformance.sabotage import histories, sinks
from cdc_conformance.sinks import SinkConformance

from cdc_core import RetryableSinkError

LINE = Line(key=b"\n", value=b"\x00\n", updated="1.0000000000")


class TestReference(sinks.SUITE):
    """Everything that a sink can promise but a history."""


class TestArchive(histories.SUITE):
    """Everything that a sink with a history promises."""


def test_every_promise_of_sinks_has_one_saboteur() -> None:
    assert sinks.SABOTEURS.keys() | histories.SABOTEURS.keys() == set(promises_of(SinkConformance))
    assert not sinks.SABOTEURS.keys() & histories.SABOTEURS.keys()


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, count=1, patience_s=1)
    tombstone = Line(key=b"k", value=None, updated=None)
    partitions.append("a/b", 0, [LINE, tombstone])
    assert list(partitions.read("a/b", 0)) == [LINE, tombstone]
    assert list(partitions.read("nothing", 0)) == []


def test_half_a_line_of_a_dead_writer_is_not_read_and_goes_with_the_next_write(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, count=1, patience_s=1)
    partitions.append("t", 0, [LINE])
    with partitions.path("t", 0).open("ab") as file:
        file.write(b'{"key": "YQ')
    assert list(partitions.read("t", 0)) == [LINE]
    partitions.append("t", 0, [LINE])
    assert list(partitions.read("t", 0)) == [LINE, LINE]


def test_a_destination_that_takes_nothing_is_waited_for_only_so_long(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, count=1, patience_s=0)
    with DirectoryDisturbance(tmp_path).stalled():
        assert partitions.is_locked()
        with pytest.raises(RetryableSinkError, match="took no message for 0 s"):
            partitions.append("t", 0, [LINE])
    assert not partitions.is_locked()


def test_a_destination_that_was_away_comes_back_in_other_files(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path / "out", count=1, patience_s=1)
    partitions.append("t", 0, [LINE])
    before = partitions.path("t", 0).stat().st_ino
    with (
        DirectoryDisturbance(tmp_path / "out").broken(),
        pytest.raises(RetryableSinkError, match="cannot be written: "),
    ):
        partitions.append("t", 0, [LINE])
    assert partitions.path("t", 0).stat().st_ino != before
    assert list(partitions.read("t", 0)) == [LINE]
