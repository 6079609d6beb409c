"""Broken sinks with a history: each is the archive with one mistake, in the sink or in what reads the history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cdc_conformance.reference.registrations import ARCHIVE
from cdc_conformance.sabotage.broken_sinks import histories as broken
from cdc_conformance.sabotage.sink_parts import Part, replaced
from cdc_conformance.sinks.exactly_once import ExactlyOnce
from cdc_conformance.sinks.fixtures import SinkFixtures
from cdc_core import SinkRegistration

__all__ = ["SABOTEURS", "SUITE"]


class HistoryConformance(ExactlyOnce, SinkFixtures):
    """The promises that only sinks with a history make."""

    kind = "sink"


class ArchiveSuite(HistoryConformance):
    """The suite with the archive."""

    sink = ARCHIVE

    @pytest.fixture
    def sink_uri(self, tmp_path: Path) -> str:
        return f"archive://{tmp_path}/out"


SUITE = ArchiveSuite

_BROKEN: Mapping[str, tuple[Part, ...]] = {
    "test_recorded_rows_are_read_exactly_once": (broken.ReturnsTheLastTable,),
    "test_an_unfinished_slice_is_not_read": (broken.ListsFilesInClose, broken.RecordsListedFiles),
    "test_a_flushed_but_unsaved_slice_is_not_read": (broken.ListsFilesInFlush, broken.RecordsListedFiles),
    "test_a_repeated_plan_writes_the_same_files": (broken.IgnoresPlannedBy,),
    "test_a_mark_can_be_recorded_twice": (broken.RecordsEachMarkOnce,),
    "test_no_row_after_a_mark_is_read": (broken.ListsAllMarks,),
    "test_incremental_reads_miss_and_repeat_nothing": (broken.SkipsEarlierMarks,),
    "test_rows_of_a_key_are_read_in_order": (broken.ListsTheNewestFirst,),
    "test_each_version_of_a_table_is_read_with_its_own_columns": (broken.KeepsOneShape,),
    "test_a_damaged_file_is_detected": (broken.TrustsFiles,),
    "test_a_missing_record_is_detected": (broken.ListsExistingMarks,),
    "test_unrecorded_rows_are_detected": (broken.TreatsUnknownAsFirst,),
    "test_each_entry_is_returned_by_one_flush": (broken.ReturnsEntriesAgain,),
    "test_entries_are_json": (broken.ReturnsTuples,),
    "test_entries_hold_no_secrets": (broken.ReturnsItsPassword,),
}
SABOTEURS: Mapping[str, SinkRegistration] = {test: replaced(ARCHIVE, *parts) for test, parts in _BROKEN.items()}
"""The name of each promise's test -> the sink, or the history, that breaks this promise."""
